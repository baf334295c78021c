"""What NumPy and Python draw while JAX traces code: once, so it is the same in every trial."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from audit.diagnosis.explain.findings import Finding, Kind
from mechanisms.adapters.watched_calls import replaced

SEED = 1
ONCE = (
    "NumPy or Python draws random numbers while JAX traces this code: once, so they are the same in every trial. Draw "
    "them with jax.random."
)


@dataclasses.dataclass(eq=False)
class Alike:
    """A function that is traced on both sides, and again, with the same draws of NumPy and Python."""

    function: Callable[..., Any]
    drew: bool = False
    """Whether there were any."""

    def __call__(self, *given: Any) -> Any:
        """What the function gives."""
        with self._seeded():
            return self.function(*given)

    @contextlib.contextmanager
    def _seeded(self) -> Iterator[None]:
        kept, made = (np.random.get_state(), random.getstate()), np.random.default_rng  # noqa: NPY002

        @functools.wraps(made)
        def default_rng(seed: Any = None) -> np.random.Generator:
            self.drew = True
            return made(SEED if seed is None else seed)

        np.random.seed(SEED)  # noqa: NPY002
        random.seed(SEED)
        fresh = _states()
        try:
            with replaced(np.random, "default_rng", default_rng):
                yield
        finally:
            self.drew |= _states() != fresh
            np.random.set_state(kept[0])  # noqa: NPY002
            random.setstate(kept[1])

    def told(self, finding: Finding, *, by_key: bool) -> Finding:
        """A finding that such draws explain says so; ``by_key`` whether noise is drawn from a key."""
        constant = finding.kind == Kind.RELEASED_WITHOUT_NOISE and not by_key
        if not self.drew or not (constant or finding.kind == Kind.IN_EVERY_BATCH):
            return finding
        return dataclasses.replace(finding, says=f"{finding.says} {ONCE}")


def _states() -> tuple[Any, ...]:
    return *(np.array(part).tobytes() for part in np.random.get_state()), random.getstate()  # noqa: NPY002
