"""Counts in, limits out. No JAX."""
