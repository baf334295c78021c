"""Split the trials of a chunk over all devices of this process, by JAX's own sharding.

Every device runs the program of one device on its own trials, and nothing is exchanged. XLA may fuse a program for
several devices differently from that for one, which moved outputs by 3e-8 at most: a score that close to an edge of the
grid can be counted beside it. Learners get outputs from one device only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

AXIS = "trials"
HERE, ALL = PartitionSpec(AXIS), PartitionSpec()
"""Shardings: a separate part on every device, and the same value on all."""


def device_mesh() -> Mesh | None:
    """Devices over which trials are split; None if there is only one, or the user has chosen one."""
    devices = jax.local_devices()
    if len(devices) == 1 or jax.config.jax_default_device is not None:  # pyright: ignore[reportAttributeAccessIssue]
        return None
    return Mesh(np.array(devices), (AXIS,))


def device_name() -> str:
    """Name of the device that trials run on, as in records."""
    device = jax.local_devices()[0]
    return f"{device.platform}: {device.device_kind}"


def devices_in(mesh: Mesh | None) -> int:
    """Number of devices that share the trials."""
    return 1 if mesh is None else mesh.size


def on_every_device(mesh: Mesh, function: Callable[..., Any], *, own: tuple[bool, ...]) -> Callable[..., Any]:
    """Run the function on every device and concatenate the results; ``own`` says which arguments are split."""
    # the check is for values that devices exchange, and they exchange none
    return jax.shard_map(
        function, mesh=mesh, in_specs=tuple(HERE if split else ALL for split in own), out_specs=HERE, check_vma=False
    )


def unstacked(part: Any) -> Any:
    """The part of every split array that lies on one device, without its axis."""
    return jax.tree.map(lambda value: value[0], part)


def trials_per_device(count: int, *, devices: int, size: int) -> list[int]:
    """How many of ``count`` trials each device draws: whole chunks of ``size``, split evenly; the last get fewer."""
    chunks = -(-count // size)
    each, more = divmod(chunks, devices)
    ends = np.cumsum([each + (device < more) for device in range(devices)]) * size
    return np.diff(np.minimum(ends, count), prepend=0).tolist()
