"""Compiled mechanisms: one round, many rounds, trainings, textbook mechanisms."""
