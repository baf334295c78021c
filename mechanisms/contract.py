"""What a mechanism is, what may be asked of one, and the adapter that fills what a user's object leaves out.

Two contracts: ``Mechanism``, a pure function that JAX traces, and ``BatchMechanism``, foreign code that draws many
outputs at once from one integer seed a trial. Whatever comes from a user passes ``mechanism(...)`` once, at the
border; behind it every question below has an answer.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast, get_args, overload, runtime_checkable

import numpy as np

from guarantees.checks import NotNegative, checked, require, require_takes
from mechanisms.names import name_of, parameters_of, place_of

if TYPE_CHECKING:
    import jax

OutputKind = Literal["vector", "collapsed", "transcript", "collapsed_transcript", "any"]
"""What outputs are: vectors or sufficient statistics, of one round or of each of many, or (of a distinguisher) any."""
OUTPUT_KINDS = ("vector", "collapsed", "transcript", "collapsed_transcript", "any")
"""All kinds of output."""

Releases = Literal["update", "transcript", "final"]
"""What is released: one step's update, every update of a training, or only what it ends with (weights, say)."""
RELEASES: tuple[Releases, ...] = get_args(Releases)
"""All answers. An update is judged against one step's claim, the other two against the whole training's."""

Draw = Callable[[np.ndarray], Any]
"""Seeds, uint64 of shape (trials,), to outputs: float32 of shape (trials, coordinates), of a transcript (trials,
rounds, coordinates), or any pytree of arrays with the trials first (mechanisms/release.py)."""


class Collapsed(NamedTuple):
    """Sufficient statistics of an output whose mean lies in a known span: O(1) in the dimension."""

    along: jax.Array
    """Coordinates of the output in an orthonormal basis of the span, shape (rank,)."""
    rest: jax.Array
    """Mean square of the other ``dimension - rank`` coordinates (a chi-square over its degrees)."""


class Described(Protocol):
    """What every mechanism answers about itself. Dataclasses inherit these answers and override those that differ."""

    @property
    def name(self) -> str:
        """The name of its constructor, as suites and reports spell it: one_round for OneRound."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The arguments of its constructor."""
        return dataclasses.asdict(cast(Any, self))

    @property
    def kind(self) -> OutputKind:
        """The kind of its outputs: a transcript if one is released, otherwise a vector."""
        return "transcript" if self.releases == "transcript" else "vector"

    @property
    def releases(self) -> Releases:
        """How much of a training an output is: one step's update, unless it says more."""
        return "update"

    def steps_on(self, dataset: Any) -> int | None:
        """Number of training steps on this dataset that an output covers; None if unknown.

        Of a transcript that does not say, its rounds are counted.
        """
        return None

    @property
    def libraries(self) -> tuple[str, ...]:
        """Import names of the libraries that it needs at run time and that may be missing."""
        return ()

    def seen_on(self, dataset: Any) -> Mapping[str, str]:
        """What one run shows of its ``sampler`` and ``divisor``, in words; empty if parameters state them."""
        return {}

    @property
    def reads_tables(self) -> bool:
        """Whether it reads a GradientTable directly; others are handed a dense array."""
        return False

    @property
    def tracer(self) -> str | None:
        """The tracer of ``audit.explain`` that follows its code line by line; None if none can."""
        return "jax" if callable(self) else None

    @property
    def followed(self) -> Any:
        """The mechanism that this tracer runs: itself, unless only other code of it can be followed."""
        return self

    @property
    def coordinates(self) -> int | None:
        """Length of an output if a network stands between records and output; None if rows are gradients."""
        return None

    def gradients(self, dataset: Any) -> Any:
        """Per-example gradients (records, coordinates) of that network, not clipped.

        A ValueError says that they are not known or change from trial to trial.
        """
        raise ValueError(f"{self.name} does not say what its per-example gradients are.")

    @property
    def gradients_told(self) -> bool | None:
        """Whether the user gave the function that computes those gradients; None if none can be given."""
        return None

    @property
    def files(self) -> tuple[Path, ...]:
        """Files besides imported Python code that decide what it does: a program and what it reads."""
        return ()

    def collapsed(self) -> Mechanism | None:
        """A mechanism of the same law with sufficient statistics as outputs, if there is such a simulator."""
        return None

    def release_on(self, dataset: Any) -> Callable[[jax.Array], Any] | None:
        """The release on one dataset as a structured function of the key (mechanisms.structure).

        Programs are then compiled for its structure alone. None: they are compiled for the mechanism as it is.
        """
        return None


class StructuredRelease(Protocol):
    """A release of this package on one dataset, in the form that compiled programs take (mechanisms.structure)."""

    def __call__(self, key: jax.Array) -> Any:
        """The output for one key."""
        ...

    def sums(self, span: int) -> bool:
        """Whether ``summary`` works for this span and returns less than the whole output."""
        return False

    def summary(self, key: jax.Array, span: int) -> Collapsed:
        """The first ``span`` coordinates of the same output, and the mean square of the others, without the vector."""
        raise ValueError(f"{type(self).__name__} has no summary; it gives whole outputs only.")


@runtime_checkable
class Mechanism(Described, Protocol):
    """One release, any pytree of arrays. Pure and traceable by JAX: it is vmapped over keys and compiled."""

    def __call__(self, key: jax.Array, dataset: Any) -> Any:
        """The output on one dataset."""
        ...


def release_on(mechanism: Any, dataset: Any) -> Callable[[jax.Array], Any] | None:
    """What it says of its release on one dataset; None where a class nearer to it says again how it is called.

    A subclass that has a ``__call__`` of its own does not do what its parent's ``release_on`` says.
    """
    either = (vars(one).keys() & {"release_on", "__call__"} for one in type(mechanism).__mro__)
    return mechanism.release_on(dataset) if "release_on" in next(filter(None, either), ()) else None


@runtime_checkable
class BatchMechanism(Described, Protocol):
    """One release by foreign code. It must not have ``__call__``: that would make it an ordinary mechanism."""

    @property
    def workers(self) -> int:
        """Number of worker processes that draw; 0 draws in the auditing process, where no time-out can be enforced."""
        return 0

    @property
    def timeout(self) -> float:
        """Seconds that one batch of trials may take in a worker."""
        return 60.0

    def prepare(self, dataset: Any) -> Draw:
        """Build once everything that trials share; the returned function draws one output for every seed.

        Row i of the outputs must depend on seed i alone: then batches, workers and resumption change nothing.
        """
        ...


@dataclasses.dataclass(frozen=True)
class _Usual(BatchMechanism):
    """The usual answers for an object that lacks them; it only has to know how to draw."""


USUAL = _Usual()  # pyright: ignore[reportAbstractUsage]


def _asked(given: Any, question: str) -> Any:
    """A user's answer to a question of the contract, or the usual one if there is none."""
    own = getattr(given, question, None)
    return getattr(USUAL, question) if own is None else own


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Filled:
    """A user's object with every question answered, by itself or as usual."""

    given: Any
    name: str
    parameters: Mapping[str, Any]
    kind: OutputKind
    releases: Releases
    libraries: tuple[str, ...]
    reads_tables: bool
    coordinates: int | None
    own_gradients: Callable[[Any], Any] | None

    @property
    def tracer(self) -> str | None:
        """The object's own tracer, if it has one."""
        return getattr(self.given, "tracer", "jax" if callable(self) else None)

    @property
    def followed(self) -> Any:
        """What the object wants followed, if it says so."""
        return getattr(self.given, "followed", self)

    def gradients(self, dataset: Any) -> Any:
        """The gradients that were given, or the object's own."""
        own = getattr(self.given, "gradients", None) if self.own_gradients is None else self.own_gradients
        return Described.gradients(cast(Described, self), dataset) if own is None else own(dataset)

    @property
    def gradients_told(self) -> bool:
        """Whether gradients were given beside the object."""
        return self.own_gradients is not None

    @property
    def files(self) -> tuple[Path, ...]:
        """No files: nothing is known beyond the object's code."""
        return ()

    def steps_on(self, dataset: Any) -> int | None:
        """The object's own number of steps, if it has one."""
        return _asked(self.given, "steps_on")(dataset)

    def seen_on(self, dataset: Any) -> Mapping[str, str]:
        """What the object itself says one run shows, if anything."""
        return _asked(self.given, "seen_on")(dataset)

    def collapsed(self) -> Mechanism | None:
        """The object's own collapsed form, if it has one."""
        found = _asked(self.given, "collapsed")()
        return None if found is None else mechanism(found)

    def release_on(self, dataset: Any) -> Callable[[jax.Array], Any] | None:
        """No structured release: this is foreign code."""
        return None


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Step(_Filled):
    """A user's function or callable object, made into a mechanism by ``mechanism``."""

    def release_on(self, dataset: Any) -> Callable[[jax.Array], Any] | None:
        """The object's own structured release, if it has one."""
        return release_on(self.given, dataset)

    def __call__(self, key: jax.Array, dataset: Any) -> Any:
        """Call the user's function."""
        return self.given(key, dataset)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignStep(_Filled):
    """A user's object with ``prepare``, made into a batch mechanism by ``mechanism``."""

    workers: int
    timeout: float

    def prepare(self, dataset: Any) -> Draw:
        """Call the object's own ``prepare``."""
        return self.given.prepare(dataset)


def as_given(mechanism: Any) -> Any:
    """The user's object itself, without the added answers."""
    return mechanism.given if isinstance(mechanism, _Filled) else mechanism


@overload
def mechanism(
    given: BatchMechanism,
    *,
    releases: Releases | None = None,
    gradients: Callable[[Any], Any] | None = None,
    clip: NotNegative | None = None,
    noise_multiplier: NotNegative | None = None,
) -> BatchMechanism: ...
@overload
def mechanism(
    given: Callable[[jax.Array, Any], Any],
    *,
    releases: Releases | None = None,
    gradients: Callable[[Any], Any] | None = None,
    clip: NotNegative | None = None,
    noise_multiplier: NotNegative | None = None,
) -> Mechanism: ...
@checked
def mechanism(
    given: Any,
    *,
    releases: Releases | None = None,
    gradients: Callable[[Any], Any] | None = None,
    clip: NotNegative | None = None,
    noise_multiplier: NotNegative | None = None,
) -> Mechanism | BatchMechanism:
    """Turn ``function(key, dataset) -> output``, or an object with part of the contract, into a full mechanism.

    A full mechanism is returned as it is. Of anything else the attributes that it has (``name``, ``parameters``,
    ``kind``, ``coordinates``, ...) are read once, and the rest is as in ``Described``. An object with ``prepare`` and
    no ``__call__`` is foreign code (``BatchMechanism``). A wrong attribute is not found here: it shows when the trials
    run.

    Args:
      given: the function, traceable by JAX, or the object.
      releases: how much of a training it releases: ``"update"``, ``"transcript"`` (every array has the rounds first) or
        ``"final"``; by default what the object says, or else ``"update"``.
      gradients: ``gradients(dataset)``, its per-example gradients, a row for every record, not clipped.
      clip: the bound that it clips to; with ``noise_multiplier`` diagnoses can ask about its noise.
      noise_multiplier: deviation of its noise over ``clip``. Remarks for the record that nothing reads belong in the
        function's own attribute ``parameters``, a dict.

    Returns:
      The mechanism. ``run_audit`` calls this itself: only functions with something to add need it.

    Raises:
      ValueError: ``releases`` is not one of these, or ``clip`` or ``noise_multiplier`` is not a number >= 0.
      TypeError: ``given`` is neither a function of a key and a dataset nor an object with ``prepare``, or the name of a
        parameter is not one of these.

    Examples:
      >>> import jax, mechanisms
      >>> def noisy_sum(key, gradients):
      ...     return gradients.sum(0) + 2.0 * jax.random.normal(key, gradients.shape[1:])
      >>> step = mechanisms.mechanism(noisy_sum, clip=1.0, noise_multiplier=2.0)
      >>> step.name, step.parameters["noise_multiplier"]
      ('noisy_sum', 2.0)
    """
    numbers = {"clip": clip, "noise_multiplier": noise_multiplier}
    told: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    own = releases is None and gradients is None and not told
    releases = _asked(given, "releases") if releases is None else releases
    require("releases", releases in RELEASES, f"one of {RELEASES}", releases)
    if isinstance(given, Mechanism | BatchMechanism) and own:
        return given
    told |= {} if gradients is None else {"gradients": place_of(gradients)}
    told |= {"given": place_of(given)} if isinstance(given, types.FunctionType) else {}
    answers: dict[str, Any] = {
        "name": name_of(given),
        "parameters": {**parameters_of(given), **told},
        "kind": "transcript" if releases == "transcript" and not hasattr(given, "kind") else _asked(given, "kind"),
        "releases": releases,
        "libraries": tuple(_asked(given, "libraries")),
        "reads_tables": bool(_asked(given, "reads_tables")),
        "coordinates": _asked(given, "coordinates"),
        "own_gradients": gradients,
    }
    if callable(given):
        require_takes("a step", given, "key", "dataset")
        return Step(given=given, **answers)
    if not hasattr(given, "prepare"):
        raise TypeError(
            "a mechanism is a function of a key and a dataset, or an object with prepare(dataset), got "
            f"{type(given).__name__}."
        )
    return ForeignStep(given=given, **answers, workers=_asked(given, "workers"), timeout=_asked(given, "timeout"))
