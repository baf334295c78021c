"""Numerics without privacy: searches, special functions and tables."""
