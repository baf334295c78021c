"""What is written down: records, where they come from, how they compare."""
