"""All devices of this process: a chunk's trials are split over them by JAX's own sharding.

Every device runs the program of one device on trials of its own, and nothing is exchanged. XLA may fuse a program for
several devices differently from that for one, which moved outputs by 3e-8 at most: a score that close to an edge of the
grid can be counted beside it. What a learner is given comes from one device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

AXIS = "trials"
HERE, ALL = PartitionSpec(AXIS), PartitionSpec()
"""A part of its own on every device, and the same on all."""


def device_mesh() -> Mesh | None:
    """The devices among which trials are split; None where there is one, or the user has chosen one."""
    devices = jax.local_devices()
    if len(devices) == 1 or jax.config.jax_default_device is not None:  # pyright: ignore[reportAttributeAccessIssue]
        return None
    return Mesh(np.array(devices), (AXIS,))


def device_name() -> str:
    """What trials run on, as records say it."""
    device = jax.local_devices()[0]
    return f"{device.platform}: {device.device_kind}"


def devices_in(mesh: Mesh | None) -> int:
    """How many devices share the trials."""
    return 1 if mesh is None else mesh.size


def on_every(mesh: Mesh, function: Callable[..., Any], *, own: tuple[bool, ...]) -> Callable[..., Any]:
    """The function on every device, its results one after the other; ``own`` says which arguments differ there."""
    # nothing is exchanged, so there is nothing whose equality on all devices could be checked
    return jax.shard_map(
        function, mesh=mesh, in_specs=tuple(HERE if o else ALL for o in own), out_specs=HERE, check_vma=False
    )


def only(part: Any) -> Any:
    """The one entry that a device has of every array that was split."""
    return jax.tree.map(lambda value: value[0], part)


def shares(count: int, *, devices: int, size: int) -> list[int]:
    """How many of ``count`` trials each device draws: whole chunks of ``size``, evenly; the last ones are fewer."""
    chunks = -(-count // size)
    each, more = divmod(chunks, devices)
    ends = np.cumsum([each + (device < more) for device in range(devices)]) * size
    return np.diff(np.minimum(ends, count), prepend=0).tolist()
