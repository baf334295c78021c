"""What ran: versions, device, number type. Part of every record."""

from __future__ import annotations

import platform
from importlib import metadata

import jax
import numpy as np

from mechanisms.bits import GENERATOR


def describe_environment() -> dict[str, str]:
    """Versions of Python, JAX and this package, the device, the number type and the generator of the noise."""
    device = jax.devices()[0]
    return {
        "dpsgd_audit": own_version(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "device": f"{device.platform}: {device.device_kind}",
        "machine": platform.machine(),
        "dtype": "float32",
        "generator": GENERATOR,
    }


def own_version() -> str:
    """The version of this package; a checkout on the path has none."""
    try:
        return metadata.version("dpsgd-audit")
    except metadata.PackageNotFoundError:
        return "not installed"


def describe_key(key: jax.Array) -> str:
    """The key's implementation and numbers, enough to make it again."""
    numbers = ",".join(str(int(number)) for number in np.asarray(jax.random.key_data(key)).ravel())
    return f"{jax.random.key_impl(key)}:{numbers}"
