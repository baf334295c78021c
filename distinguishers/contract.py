"""The contract of distinguishers, and the adapter that fills in what a user's object leaves out."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast, overload, runtime_checkable

import numpy as np

from guarantees.checks import checked
from guarantees.trade_off import TradeOff
from mechanisms.contract import OutputKind
from mechanisms.names import name_of, parameters_of
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

if TYPE_CHECKING:
    import jax


class Reads(Protocol):
    """What a score of this package reads of an output, which decides how both are compiled.

    A score that may read all of any output inherits these answers.
    """

    @property
    def span(self) -> int | None:
        """Number of first coordinates that it reads beside the mean square of the others; None if it may read all."""
        return None

    @property
    def length(self) -> int | None:
        """Number of coordinates of the outputs that it reads, over all rounds; None if any will do."""
        return None

    @property
    def round_length(self) -> int | None:
        """Number of coordinates of each round of a transcript; None if any will do."""
        return None


class OneScore(Reads, Protocol):
    """Inherited by dataclasses with a single score; a battery has its own ``members``."""

    @property
    def members(self) -> tuple[Distinguisher, ...]:
        """The distinguishers whose scores it gives, in that order: itself alone."""
        return (cast(Distinguisher, self),)


@runtime_checkable
class Distinguisher(Protocol):
    """Scores one output: the larger the score, the more it looks as if the record had been there."""

    @property
    def members(self) -> tuple[Distinguisher, ...]:
        """The distinguishers whose scores it gives, in that order: itself alone, unless it is a battery."""
        ...

    @property
    def name(self) -> str:
        """The name of its constructor, as suites and reports spell it."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Arguments of its constructor."""
        ...

    @property
    def accepts(self) -> tuple[OutputKind, ...]:
        """The kinds of output it can read; anything else is refused before running."""
        ...

    @property
    def curve(self) -> TradeOff | None:
        """The exact curve of the pair, if the score is its log-likelihood ratio.

        It lets thresholds be fixed from theory. A wrong curve costs power, never validity.
        """
        ...

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The score, a float32 scalar (one for each member of a battery); the key breaks ties."""
        ...


class OwnScore(Distinguisher, Reads, Protocol):
    """A distinguisher that also says what it reads, as all in this package do."""


@runtime_checkable
class Learner(Protocol):
    """Learns a distinguisher from outputs that nothing judges; the auditor draws them under keys of their own."""

    @property
    def name(self) -> str:
        """The name of its constructor, as suites and reports spell it."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Arguments of its constructor."""
        ...

    def fit_trials(self, trials: int) -> int:
        """Outputs to learn from, half per side, if ``trials`` are judged; fewer come if memory or time is short."""
        ...

    def learn(self, key: jax.Array, without: Any, with_record: Any, layout: Layout) -> Distinguisher:
        """The same distinguisher whenever key and outputs (leading axis = trial) are the same; it may have members."""
        ...


@runtime_checkable
class ReadsPair(Protocol):
    """Has the pair whose gradients it reads, as batteries and scores of one direction do."""

    @property
    def neighbours(self) -> Neighbours | None:
        """That pair; None if it reads none."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score(OneScore):
    """A user's function or callable object, made into a distinguisher by ``distinguisher``."""

    given: Callable[..., Any]
    takes_key: bool
    name: str
    parameters: Mapping[str, Any]
    accepts: tuple[OutputKind, ...]
    curve: TradeOff | None

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """Call it."""
        import jax.numpy as jnp

        score = self.given(key, output) if self.takes_key else self.given(output)
        shape = np.shape(score)
        if shape not in ((), (1,)):
            raise ValueError(
                f"a distinguisher must return one score per output, got shape {shape}; "
                "distinguishers.fit(function) learns one score from several features."
            )
        # a yes or no is a score too
        return jnp.asarray(score, jnp.float32)


QUESTIONS = ("members", "name", "parameters", "accepts", "curve", "__call__")
"""Members of the protocol of distinguishers."""


def _answers_all(given: Any) -> bool:
    """Whether an object has all members of the protocol, without computing any, as ``isinstance`` may."""
    return not isinstance(given, type) and all(
        inspect.getattr_static(given, question, None) is not None for question in QUESTIONS
    )


@overload
def distinguisher(given: Learner) -> Learner: ...
@overload
def distinguisher(given: Distinguisher | Callable[..., jax.Array], **parameters: Any) -> Distinguisher: ...
@overload
def distinguisher(
    given: Distinguisher | Learner | Callable[..., jax.Array], **parameters: Any
) -> Distinguisher | Learner: ...
@checked
def distinguisher(given: Any, **parameters: Any) -> Distinguisher | Learner:
    """Turn your function or object into a full distinguisher.

    A full distinguisher or a learner is returned as it is. Anything else must give one score. Its ``name``,
    ``parameters``, ``accepts`` and ``curve`` are read once; the defaults are its class's name, nothing, any kind of
    output, and no curve. A score that was chosen on the trials it judges proves nothing.

    Args:
      given: ``function(output) -> score``, ``function(key, output) -> score``, or an object that answers in part.
      **parameters: what records say about a function.

    Returns:
      A distinguisher or a learner.

    Raises:
      TypeError: ``given`` cannot be called.

    Examples:
      >>> import distinguishers, jax.numpy as jnp
      >>> def largest(output):
      ...     return jnp.max(output)
      >>> distinguishers.distinguisher(largest).name
      'largest'
    """
    if isinstance(given, Learner):
        return given
    if not parameters and (_answers_all(given) or isinstance(given, Distinguisher)):
        return given
    if not callable(given):
        raise TypeError(f"a distinguisher is a function of an output, or of a key and an output, got {given!r}.")
    return Score(
        given=given,
        takes_key=_takes_key(given),
        name=name_of(given),
        parameters={**parameters_of(given), **parameters},
        accepts=tuple(getattr(given, "accepts", ("any",))),
        curve=getattr(given, "curve", None),
    )


def known_curve(given: Distinguisher | Learner | None) -> TradeOff | None:
    """The exact curve, if it is known before any trial; a learner has none."""
    return None if given is None or isinstance(given, Learner) else given.curve


def pair_read(given: Distinguisher | Learner) -> Neighbours | None:
    """The pair whose gradients it reads, if it keeps one."""
    return given.neighbours if isinstance(given, ReadsPair) else None


def _takes_key(given: Callable[..., Any]) -> bool:
    """Whether a function takes a key before the output: unless it requires exactly one argument."""
    try:
        arguments = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):
        return True
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in arguments if one.kind in places and one.default is inspect.Parameter.empty]
    return len(needed) != 1 or any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in arguments)
