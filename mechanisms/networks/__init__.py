"""Networks whose updates are audited, of the sizes that published systems train."""

from types import MappingProxyType

NETWORKS = ("linear", "classifier", "denoiser")
PARAMETERS = MappingProxyType({"classifier": 26_010, "denoiser": 1_485_217})
"""Numbers of trainable parameters; a linear model has as many as its dataset has columns. [wang2026, section 5.4]"""
INITIAL_SEED = 0
"""Seed of the initial weights, which are public: every trial starts from them."""
