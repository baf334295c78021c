"""Where random numbers come from: bits, noise and its kernel, counts, chi-square sums. A record names its version."""
