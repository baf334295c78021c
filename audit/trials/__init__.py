"""Where scores come from: traced programs and foreign code, one side at a time. No statistics."""
