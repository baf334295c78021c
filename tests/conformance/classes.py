"""The three libraries as their authors would test them, each with a bug or without."""

from __future__ import annotations

import functools
import importlib

from audit.conformance import SubsampledGaussianConformance

LIBRARIES = ("numpy", "torch", "jax")
TENSORS = {"weight": (4, 6), "bias": (6,)}


def conformance_class(name: str, bug: str = "") -> type[SubsampledGaussianConformance]:
    """What a library's author writes, with a switch for the bug."""
    own = importlib.import_module(f"conformance.{name}_library")

    class TestLibrary(SubsampledGaussianConformance):
        library = name
        tensors = TENSORS

        def make_step(self, **settings):
            return functools.partial(own.step, **settings, bug=bug)

        def make_training(self, *, steps, **settings):
            return functools.partial(own.training, **settings, bug=bug)

    return TestLibrary
