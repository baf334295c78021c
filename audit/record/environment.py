"""What ran: versions, device, number type. Part of every record."""

from __future__ import annotations

import platform

import jax
import numpy as np

from audit.trials.versions import own_code, version_of
from mechanisms.randomness.bits import GENERATOR


def describe_environment(device: str) -> dict[str, str]:
    """What a record keeps: the versions, and a digest of our own code, since many commits have one version."""
    return {**describe_versions(device), "own_code": own_code()}


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
