"""Mechanisms of our own, compiled: one round, many rounds, trainings, textbook mechanisms."""
