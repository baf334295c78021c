"""Scores fitted on outputs of their own."""
