"""Where random numbers come from: bits, noise and its kernels, counts, chi-square sums. A record names its version."""
