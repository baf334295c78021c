"""Shuffled epochs and other batch samplers: exact curves, bounds and asymptotics."""
