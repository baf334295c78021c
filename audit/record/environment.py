"""The environment of an audit for its record: versions, device, number type."""

from __future__ import annotations

import importlib.util
import platform
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from audit.trials.versions import own_code, version_of
from mechanisms.adapters.environments import NeedsEnvironment
from mechanisms.contract import Described
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.randomness.bits import GENERATOR

BESIDE = {"torch": ("torch", "opacus")}
"""Further distributions whose versions are recorded with a library, if they are installed."""


def describe_environment(device: str, *, audited: Described | None = None) -> dict[str, str]:
    """The versions that a record keeps, and a digest of our own code, since many commits have one version.

    The libraries are those that the ``audited`` mechanism imports here; one that runs in an environment of its own has
    its packages among its parameters.
    """
    libraries = () if audited is None or _has_own_environment(audited) else audited.libraries
    names = [name for library in libraries for name in BESIDE.get(library, (library,))]
    of_libraries = {name: version_of(name) for name in names if importlib.util.find_spec(name) is not None}
    return {**describe_versions(device), **of_libraries, "own_code": own_code()}


BATCHES = ("sampler", "divisor")
"""Observed settings that may differ between the two datasets."""


def _has_own_environment(audited: Described) -> bool:
    """Whether a mechanism runs in an environment of its own."""
    return isinstance(audited, NeedsEnvironment) and audited.installs is not None


def seen_of(audited: Described, dataset: Any) -> Mapping[str, str]:
    """How batches are drawn and divided in one run; nothing if it ends in an error, as it may by chance.

    If all runs fail, the trials report that.
    """
    try:
        return audited.seen_on(dataset)
    except Exception:
        return {}


def seen_of_both(audited: Described, neighbours: Neighbours) -> Mapping[str, str]:
    """How batches are drawn and divided on both datasets, with both values where they differ."""
    without = seen_of(audited, neighbours.without)
    if not without:
        return {}
    with warnings.catch_warnings():
        # the first run has warned already
        warnings.simplefilter("ignore")
        with_record = seen_of(audited, neighbours.with_record)
    differ = {name for name in BATCHES if name in without and with_record.get(name, without[name]) != without[name]}
    return {
        name: f"{value} without the record; {with_record[name]} with it" if name in differ else value
        for name, value in without.items()
    }


def describe_versions(device: str) -> dict[str, str]:
    """Versions of Python, JAX and this package, the device, the number type and the generator of the noise."""
    return {
        "dpsgd_audit": version_of("dpsgd-audit"),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "device": device,
        "machine": platform.machine(),
        "dtype": "float32",
        "generator": GENERATOR,
    }


def describe_key(key: jax.Array) -> str:
    """The key's implementation and numbers, enough to make it again."""
    numbers = ",".join(str(int(number)) for number in np.asarray(jax.random.key_data(key)).ravel())
    return f"{jax.random.key_impl(key)}:{numbers}"
