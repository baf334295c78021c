"""What a mechanism is: a pure function from a key and a dataset to an output."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import jax

OutputKind = Literal["vector", "collapsed", "transcript", "collapsed_transcript", "any"]
OUTPUT_KINDS = ("vector", "collapsed", "transcript", "collapsed_transcript", "any")


class Collapsed(NamedTuple):
    """Sufficient statistics of an output whose mean lies in a known span: O(1) in the dimension."""

    along: jax.Array
    """Coordinates of the output in an orthonormal basis of the span, shape (rank,)."""
    rest: jax.Array
    """Mean square of the other ``dimension - rank`` coordinates (a chi-square over its degrees)."""


class Described(Protocol):
    """How anything that releases describes itself; dataclasses with a constructor of their name take this as it is."""

    @property
    def name(self) -> str:
        """The name of its constructor, as suites and reports spell it: one_round for OneRound."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What its constructor was given."""
        return dataclasses.asdict(cast(Any, self))

    @property
    def kind(self) -> OutputKind:
        """What its outputs are: a full vector, unless it says collapsed statistics."""
        return "vector"


@runtime_checkable
class Mechanism(Described, Protocol):
    """One release. Pure and traceable by JAX: it is vmapped over keys and compiled."""

    def __call__(self, key: jax.Array, dataset: Any) -> Any:
        """The output on one dataset."""
        ...


class Step(NamedTuple):
    """A user's function, made into a mechanism."""

    function: Callable[[jax.Array, Any], Any]
    name: str
    parameters: Mapping[str, Any]
    kind: OutputKind = "vector"

    def __call__(self, key: jax.Array, dataset: Any) -> Any:
        """Call the function."""
        return self.function(key, dataset)


def mechanism(function: Callable[[jax.Array, Any], Any], **parameters: Any) -> Step:
    """Wrap ``function(key, dataset) -> vector`` so that it can be audited under its own name."""
    return Step(function, getattr(function, "__name__", "step"), parameters)
