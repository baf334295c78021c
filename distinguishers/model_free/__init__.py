"""Scores that know a direction or a shape, but no law of the output."""
