"""Likelihood ratios of mechanisms whose law is known."""
