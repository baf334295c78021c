"""What a distinguisher is: a function from an output to a score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import jax

from guarantees.trade_off import TradeOff
from mechanisms.contract import OutputKind


@runtime_checkable
class Distinguisher(Protocol):
    """Scores one output: the larger the score, the more it looks as if the record had been there."""

    @property
    def name(self) -> str:
        """The name of its constructor, as suites and reports spell it."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What its constructor was given."""
        ...

    @property
    def accepts(self) -> tuple[OutputKind, ...]:
        """The kinds of output it can read; anything else is refused before running."""
        ...

    @property
    def curve(self) -> TradeOff | None:
        """If the score is the log-likelihood ratio of a pair whose exact curve is known: that curve.

        It lets thresholds be fixed from theory. A wrong curve costs power, never validity.
        """
        ...

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The score, a float32 scalar; the key breaks ties."""
        ...
