"""Many rounds of DP-SGD over epochs of batches: adaptive batch linear queries, and what an adversary sees of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal, cast

from dpsgd_audit.later import jax, jnp
from guarantees.answers import answers
from guarantees.checks import Count, Positive, checked, require
from mechanisms import sampling
from mechanisms.contract import Collapsed, Described, Mechanism, OutputKind, Releases, StructuredRelease, release_on
from mechanisms.pairs.neighbours import GradientTable, materialise, records_in
from mechanisms.randomness.chi_square import MeanSquare, mean_square_law
from mechanisms.randomness.noise import normal
from mechanisms.sampling import Sampler, epoch_keys
from mechanisms.simulators.rounds import clip_rows, clipped_rows
from mechanisms.simulators.table_rounds import TableRounds, table_rounds
from mechanisms.structure import is_ours, structured

Sees = Literal["updates", "isolated"]
Query = Callable[["jax.Array", "jax.Array", "jax.Array"], "jax.Array"]
"""``query(history, round, records) -> gradients``: the released updates so far (zero where still to come), the number
of the round, and the dataset, as per-example gradients (records, dimension) before clipping."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ManyRounds(Described):
    """Rounds ``sum of clipped gradients in the batch + noise_multiplier * clip * N(0, I)``, batch after batch.

    [chua2024, algorithm 1] The last ``group`` records are those that differ between neighbours. This simulates the
    rule; it says nothing about any library's code.

    Args:
      sampler: how batches are formed, one of ``mechanisms.sampling``.
      clip: l2 norm to which gradients are clipped.
      noise_multiplier: standard deviation of the noise over ``clip``.
      epochs: how often the sampler goes through the dataset.
      sees: ``"updates"``, every noisy sum, or ``"isolated"``, the same with the other records' gradients taken off: an
        adversary who knows them. [ertan2026, assumptions 4.1 and 4.2]
      releases: the ``"transcript"`` of all rounds, or only their sum (``"final"``: weights after plain steps of length
        1).
      group: how many of the last records differ.
      query: makes the next round's gradients from what was released before; by default every record has one gradient,
        its row.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import mechanisms
      >>> batches = mechanisms.sampling.shuffle(batch_size=2)
      >>> mechanisms.many_rounds(sampler=batches, clip=1.0, noise_multiplier=1.0).kind
      'transcript'
    """

    sampler: Sampler
    clip: Positive
    noise_multiplier: Positive
    epochs: Count = 1
    sees: Sees = "updates"
    releases: Releases = "transcript"  # pyright: ignore[reportIncompatibleMethodOverride]
    group: Count = 1
    query: Query | None = None

    def __post_init__(self):
        object.__setattr__(self, "sampler", sampling.sampler(self.sampler))
        require("sampler", isinstance(self.sampler, Sampler), "one of mechanisms.sampling", self.sampler)
        require("releases", self.releases in ("transcript", "final"), "transcript or final", self.releases)

    @property
    def parameters(self):
        """Arguments of its constructor, with the sampler by its name and parameters."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "sampler"}
        return {"sampler": {"kind": self.sampler.name, **self.sampler.parameters}, **own}

    def rounds(self, records: int) -> int:
        """Number of rounds of the whole training."""
        return self.epochs * self.sampler.rounds(records)

    def steps_on(self, dataset: Any) -> int | None:
        """Number of rounds on this dataset."""
        records = records_in(dataset)
        return None if records is None else self.rounds(records)

    def collapsed(self) -> CollapsedRounds:
        """The same law through sufficient statistics, for aligned gradients that do not adapt."""
        require("query", self.query is None, "None: the collapsed simulator does not adapt", self.query)
        return CollapsedRounds(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "query"})

    @property
    def reads_tables(self) -> bool:
        """Whether it accepts a GradientTable."""
        return self.query is None and sampling.is_ours(self.sampler)

    def release_on(self, dataset: Any) -> TableRounds | None:
        """The rounds on a table of gradients along the first axes; a user's own sampler is compiled as it is."""
        along_axes = isinstance(dataset, GradientTable) and dataset.basis is None
        if self.query is not None or not along_axes or not sampling.is_ours(self.sampler):
            return None
        return table_rounds(
            dataset,
            sampler=self.sampler,
            clip=self.clip,
            deviation=self.noise_multiplier * self.clip,
            epochs=self.epochs,
            isolated=self.sees == "isolated",
            final=self.releases == "final",
            group=self.group,
        )

    def __call__(self, key: jax.Array, dataset: Any) -> jax.Array:
        """The transcript (rounds, dimension), or its sum."""
        if (known := self.release_on(dataset)) is not None:
            return known(key)
        records = jnp.asarray(materialise(dataset), jnp.float32)
        if records.ndim != 2 or records.shape[0] < 1:
            raise ValueError(f"dataset must have shape (records, dimension), records >= 1, got {records.shape}.")
        rows, dimension = records.shape
        keys = epoch_keys(key, self.sampler, self.epochs)
        batches = jax.vmap(lambda own: self.sampler(own, rows))(keys)
        index, mask = (part.reshape(-1, part.shape[-1]) for part in batches)
        steps = jnp.arange(len(index))
        fixed = clip_rows(records, self.clip) if self.query is None else None

        def take(history: jax.Array, step: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array | None]:
            number, own, present = step
            if fixed is None:
                assert self.query is not None
                gradients = clip_rows(self.query(history, number, records), self.clip)
            else:
                gradients = fixed
            if self.sees == "isolated":
                present = present * (own >= rows - self.group)
            total = jnp.dot(present, gradients[own], precision=jax.lax.Precision.HIGHEST)
            noise = normal(jax.random.fold_in(key, number + 1), (dimension,))
            released = total + self.noise_multiplier * self.clip * noise
            if self.query is not None:
                return history.at[number].set(released), None
            return (history + released, None) if self.releases == "final" else (history, released)

        # An adaptive query reads the history; otherwise it is only summed, or not kept at all.
        size = (len(index), dimension) if self.query is not None else (dimension,)
        history, transcript = jax.lax.scan(take, jnp.zeros(size, jnp.float32), (steps, index, mask))
        if self.query is not None:
            return history if self.releases == "transcript" else jnp.sum(history, axis=0)
        return history if transcript is None else transcript


@answers(reads_tables=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class CollapsedRounds(Described):
    """The rounds of ``many_rounds`` along the one direction of the gradients: a number a round, not a vector.

    The common records share one gradient, and that of the differing record is parallel to it (worst_case_pair), so that
    what a batch adds follows from how many others attend and whether the record does. Noise in other directions is
    independent of everything, and left out unless the final sum is requested in full.
    """

    sampler: Sampler
    clip: float
    noise_multiplier: float
    epochs: int = 1
    sees: Sees = "updates"
    releases: Releases = "transcript"  # pyright: ignore[reportIncompatibleMethodOverride]
    group: int = 1

    def __post_init__(self):
        object.__setattr__(self, "sampler", self._full().sampler)

    def _full(self) -> ManyRounds:
        return ManyRounds(**{field.name: getattr(self, field.name) for field in dataclasses.fields(self)})

    @property
    def parameters(self):
        """Arguments of its constructor."""
        return {key: value for key, value in self._full().parameters.items() if key != "query"}

    @property
    def kind(self) -> OutputKind:
        """Sufficient statistics, of every round or of their sum."""
        return "collapsed_transcript" if self.releases == "transcript" else "collapsed"

    def rounds(self, records: int) -> int:
        """Number of rounds of the whole training."""
        return self.epochs * self.sampler.rounds(records)

    def steps_on(self, dataset: Any) -> int | None:
        """Number of rounds on this dataset."""
        records = records_in(dataset)
        return None if records is None else self.rounds(records)

    def release_on(self, dataset: Any) -> CollapsedEpochs | None:
        """The epochs as one program for both datasets; None for a user's own sampler, which is compiled as it is."""
        return self._epochs(dataset) if sampling.is_ours(self.sampler) else None

    def __call__(self, key: jax.Array, dataset: Any) -> Collapsed:
        """The statistics (rounds, 1) of a transcript, or (1,) of the sum, on an aligned GradientTable."""
        return self._epochs(dataset)(key)

    def _epochs(self, dataset: Any) -> CollapsedEpochs:
        shared, own = aligned(dataset, self.clip, self.group)
        deviation, degrees = self.noise_multiplier * self.clip, dataset.dimension - 1
        final = self.releases == "final"
        if final:
            deviation *= math.sqrt(self.rounds(dataset.records))
        return CollapsedEpochs(
            shared=None if self.sees == "isolated" else shared,
            own=own,
            deviation=deviation,
            rest=mean_square_law(degrees, scale=deviation**2) if final and degrees else None,
            sampler=self.sampler,
            records=dataset.records,
            epochs=self.epochs,
            group=self.group,
            final=final,
        )


@structured(
    numbers=("shared", "own", "deviation", "rest"), structure=("sampler", "records", "epochs", "group", "final")
)
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CollapsedEpochs(StructuredRelease):
    """Epochs along the one direction of the gradients."""

    shared: float | None
    """Gradient of the common records; None if they are subtracted."""
    own: float
    deviation: float
    """Standard deviation of a round's noise, or of the sum's."""
    rest: MeanSquare | None
    sampler: Sampler
    records: int
    epochs: int
    group: int
    final: bool

    def __call__(self, key: jax.Array) -> Collapsed:
        """The statistics for one key."""
        keys = epoch_keys(key, self.sampler, self.epochs)
        seen = jax.vmap(lambda epoch: self.sampler.attendance(epoch, self.records, self.group))(keys)
        others, record = seen.others.reshape(-1), seen.record.reshape(-1)
        means = self.own * record if self.shared is None else self.shared * others + self.own * record
        if self.final:
            along = jnp.sum(means) + self.deviation * normal(key, (1,))
            return Collapsed(along, jnp.float32(0.0) if self.rest is None else self.rest(key))
        along = means + self.deviation * normal(key, means.shape)
        return Collapsed(along[:, None], jnp.zeros(means.shape, jnp.float32))


def aligned(dataset: Any, clip: float, group: int = 1) -> tuple[float, float]:
    """Clipped gradients of the common records and of the differing ones, along their one direction."""
    if (
        not isinstance(dataset, GradientTable)
        or dataset.rank != 1
        or len(dataset.counts) != 2
        or dataset.counts[1] != group
    ):
        raise ValueError(
            f"the collapsed simulator of many rounds needs all gradients along one line and the {group} differing "
            "record(s) present in both datasets: worst_case_pair(..., relation='zero_out' or 'substitution', with the "
            "same group), and a claim for that relation. Other pairs need simulator='full'."
        )
    shared, own = clipped_rows(dataset.rows, clip)[:, 0]
    return float(shared), float(own)


@answers(releases="transcript")
@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeated(Described):
    """``times`` independent releases of one mechanism on the same dataset, all of them seen.

    With ``one_round`` this is training on Poisson batches with any normaliser and gradients that do not change: no
    release depends on an earlier one.

    Args:
      step: a mechanism that JAX can trace, of one release (a vector or its collapsed statistics).
      times: how many releases, at least 1.

    Raises:
      ValueError: ``step`` is none of these, or ``times`` is below 1.

    Examples:
      >>> import mechanisms
      >>> step = mechanisms.one_round(normalise_by="realised_batch", rate=0.5, clip=1.0, noise_multiplier=1.0)
      >>> mechanisms.repeated(step=step, times=3).kind
      'transcript'
    """

    step: Mechanism
    times: Count

    def __post_init__(self):
        require("step", isinstance(self.step, Mechanism), "a mechanism that JAX can trace", self.step)
        require("step", self.step.kind in ("vector", "collapsed"), "a mechanism of one release", self.step.kind)

    @property
    def parameters(self):
        """The step by its name and parameters."""
        return {"step": {"kind": self.step.name, **self.step.parameters}, "times": self.times}

    @property
    def kind(self) -> OutputKind:
        """A transcript of the releases of the step."""
        return "collapsed_transcript" if self.step.kind == "collapsed" else "transcript"

    def steps_on(self, dataset: Any) -> int:
        """Number of releases."""
        del dataset
        return self.times

    @property
    def reads_tables(self) -> bool:
        """Whether the step accepts a GradientTable."""
        return self.step.reads_tables

    def collapsed(self) -> Repeated | None:
        """The same releases by the step's sufficient statistics."""
        step = self.step.collapsed()
        return None if step is None else Repeated(step=step, times=self.times)

    def release_on(self, dataset: Any) -> Stacked | None:
        """The step's releases, if it is structured."""
        step = release_on(self.step, dataset)
        return None if step is None else Stacked(step=step, times=self.times)

    def __call__(self, key: jax.Array, dataset: Any) -> Any:
        """Every release, stacked."""
        return Stacked(step=lambda own: self.step(own, dataset), times=self.times)(key)


@structured(numbers=("step",), structure=("times",))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Stacked(StructuredRelease):
    """Independent releases of one step."""

    step: Callable[[jax.Array], Any]
    times: int

    def __call__(self, key: jax.Array) -> Any:
        """Every release, stacked."""
        return jax.vmap(self.step)(self._keys(key))

    def sums(self, span: int) -> bool:
        """Whether the step can give its sums without its vector."""
        return is_ours(self.step) and cast(StructuredRelease, self.step).sums(span)

    def summary(self, key: jax.Array, span: int) -> Collapsed:
        """Statistics of every release, one after the other, so that no vector is kept."""
        step = cast(StructuredRelease, self.step)
        return jax.lax.map(lambda own: step.summary(own, span), self._keys(key))

    def _keys(self, key: jax.Array) -> jax.Array:
        return jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(self.times))


many_rounds = ManyRounds
repeated = Repeated
