"""What ran: versions, device, number type. Part of every record."""

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
"""What belongs to a library that a mechanism needs: its version is told where it is installed."""


def describe_environment(device: str, *, audited: Described | None = None) -> dict[str, str]:
    """What a record keeps: the versions, and a digest of our own code, since many commits have one version.

    The libraries are those that the ``audited`` mechanism imports here; what runs in an environment of its own has its
    packages among its parameters.
    """
    here = () if audited is None or _elsewhere(audited) else audited.libraries
    names = [name for library in here for name in BESIDE.get(library, (library,))]
    own = {name: version_of(name) for name in names if importlib.util.find_spec(name) is not None}
    return {**describe_versions(device), **own, "own_code": own_code()}


BATCHES = ("sampler", "divisor")
"""What the two datasets may change."""


def _elsewhere(audited: Described) -> bool:
    return isinstance(audited, NeedsEnvironment) and audited.installs is not None


def seen_of(audited: Described, dataset: Any) -> Mapping[str, str]:
    """What one run shows of how batches are drawn and divided; nothing where it ends in an error, as it may by chance.

    The trials say so themselves if all of them do.
    """
    try:
        return audited.seen_on(dataset)
    except Exception:
        return {}


def seen_of_both(audited: Described, neighbours: Neighbours) -> Mapping[str, str]:
    """What runs on the two datasets show; where sampler or divisor differ between them, both."""
    without = seen_of(audited, neighbours.without)
    if not without:
        return {}
    with warnings.catch_warnings():
        # the first run has warned already
        warnings.simplefilter("ignore")
        beside = seen_of(audited, neighbours.with_record)
    differ = {name for name in BATCHES if name in without and beside.get(name, without[name]) != without[name]}
    return {
        name: f"{says} without the record; {beside[name]} with it" if name in differ else says
        for name, says in without.items()
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
