"""The record of an audit: versioned JSON. Reports, exit codes and comparisons read only this."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Mu
from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.bounds.points import proven_delta, proven_epsilon, proven_mu
from audit.record.diagnosis_answer import Diagnosis
from audit.record.vouched import OneRunPart, ScoresPart
from audit.risk import RiskBudget, Statement
from audit.verdict.proven_numbers import ProvenNumber, stated
from audit.verdict.verdict import Verdict
from audit.verdict.violated import ViolatedAt
from guarantees.numerics.rounding import at_least, at_most
from mechanisms.pairs.gradient_lengths import GradientLengths

SCHEMA = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A mechanism, a pair of neighbours or a distinguisher, by name and parameters."""

    name: str
    parameters: Mapping[str, Any]
    kind: str = ""

    def describe(self) -> str:
        """The constructor call that makes this part."""
        inside = ", ".join(f"{key}={value!r}" for key, value in self.parameters.items())
        return f"{self.name}({inside})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """A trade-off curve at a few points."""

    alpha: tuple[float, ...]
    beta: tuple[float, ...]


LONG_LIST = 4
"""Most numbers of a list that a table shows individually."""


def _is_long(value: Any) -> bool:
    """Whether a value is a list that tables shorten."""
    return isinstance(value, list | tuple) and len(value) > LONG_LIST


class _Shortened:
    """A list that is printed as '63 values, 2 to 64'."""

    def __init__(self, values: Sequence[Any]):
        self._says = f"{len(values)} values"
        if all(isinstance(value, int | float) for value in values):
            self._says += f", {values[0]:.4g} to {values[-1]:.4g}"

    def __repr__(self) -> str:
        return f"[{self._says}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimPart:
    """The claim that was judged, with its curve at at most 200 points."""

    name: str
    parameters: Mapping[str, Any]
    relation: str
    unit: str
    observation: str
    source: str
    error: float
    epsilon: float | None
    """Claimed epsilon at the record's delta: the most that it may be where the claim's numerical error matters, and
    None where that leaves it unknown or where the claim could not be built."""
    advantage: float
    """Claimed delta at epsilon 0: the advantage that the claim allows an attacker."""
    curve: Curve
    times: int = 1
    """Number of independent outputs that it is about."""
    steps: int | None = None
    """Number of training steps that it counts; None if it does not say."""

    def error_exceeds(self, delta: float) -> bool:
        """Whether the numerical error exceeds delta, so that the computed epsilon is not valid there."""
        return (self.epsilon is None and self.error > 0) or 0 < delta < self.error

    def epsilon_at(self, delta: float) -> str:
        """The claimed epsilon at the record's delta in words, including whether the numerical error exceeds delta."""
        if self.epsilon is None and self.error == 0:
            return "not known (the claim could not be built)"
        if self.epsilon is not None and not self.error_exceeds(delta):
            return f"{at_most(self.epsilon)} at delta {delta:g}"
        times = " times 1 + e^epsilon" if self.error <= delta else ""
        error = f"the claim's numerical error {self.error:.1g}{times} exceeds delta {delta:g}"
        why = f"{error}; its curve is computed no more exactly than that, and the verdict allows for it"
        return f"not known ({why})" if self.epsilon is None else f"at most {at_most(self.epsilon)} ({why})"

    def short(self) -> str:
        """The constructor call for a table, with long lists replaced by their length and ends."""
        parameters = {key: _Shortened(value) if _is_long(value) else value for key, value in self.parameters.items()}
        return dataclasses.replace(self, parameters=parameters).describe()

    def describe(self) -> str:
        """The constructor call that makes this claim."""
        call = Part(name=self.name, parameters=self.parameters).describe()
        return f"{call}.compose({self.times})" if self.times > 1 else call


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProvenPoint:
    """One judged test: threshold, counts, its share of the risk, and limits on its error rates."""

    target: str
    member: str
    threshold: float
    rejects: str
    risk: float
    counts: ErrorCounts
    alpha_upper: float
    beta_upper: float
    on_alpha: float = 0.5
    """Share of its risk that is spent on the false-alarm rate."""

    @property
    def limits(self) -> Limits:
        """The proven limits on both error rates."""
        return Limits(alpha=self.alpha_upper, beta=self.beta_upper)

    @property
    def limited(self) -> bool:
        """Whether its limits say more than that rates are at most 1."""
        return self.alpha_upper < 1 or self.beta_upper < 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreGrid:
    """Integer score counts of one distinguisher on a grid fixed beforehand, both sides."""

    member: str
    edges: tuple[float, ...]
    without: tuple[int, ...]
    with_record: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Band:
    """A simultaneous upper band on the trade-off curve: a statement of its own, at its own risk."""

    risk: float
    alpha: tuple[float, ...]
    beta: tuple[float, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuitePart:
    """The suite that an audit was run in: its audits share one risk and one seed, and their verdicts are adjusted."""

    risk: float
    audits: int
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class AuditRecord:
    """Everything that one audit found, and everything needed to repeat it. ``audit.run_audit`` makes it.

    ``verdict`` and ``reason`` are the answer; ``epsilon(delta)``, ``delta(epsilon)`` and ``mu`` are proven lower
    bounds, which hold together with probability at least ``1 - risk``. A bound of 0 shows nothing, and none of them is
    an upper bound on what leaks. ``audit.save_records`` and ``audit.load_records`` keep records in a file.

    Examples:
      >>> import audit, distinguishers, guarantees, jax, mechanisms
      >>> step, pair = mechanisms.gaussian_mechanism(noise_multiplier=1.0), mechanisms.scalar_pair()
      >>> given = dict(claim=guarantees.gaussian(mu=0.1), trials=1000, risk=0.05, key=jax.random.key(0))
      >>> record = audit.run_audit(step, pair, distinguishers.likelihood_ratio(step, pair), **given, diagnose=False)
      >>> record.verdict, record.reason
      ('violation', 'the proven delta exceeds what the claim promises.')
      >>> record.mu > 0.1, record.epsilon(1e-5) > given["claim"].epsilon(1e-5)
      (True, True)
    """

    name: str
    """What the audit is called in suites and reports."""
    verdict: Verdict
    """``"violation"``, ``"no_violation_found"``, ``"inconclusive"`` or ``"could_not_run"``."""
    reason: str
    """Why, in one sentence."""
    p_value: float
    """Smallest risk at which this audit alone would say 'violation'."""
    adjusted_p_value: float
    """Smallest risk of the whole suite at which it would; the p-value itself outside a suite."""
    expect: Verdict
    """The verdict that counts as a success."""
    risk: float
    """Probability, at most, that any statement of the record is wrong."""
    report_delta: float
    """The delta at which epsilon is reported."""
    trials: int
    """Outputs drawn and judged, half of them on each dataset."""
    trials_planned: int
    """What was asked for; more than ``trials`` where a deadline or the data ended the audit."""
    fit_trials: int
    """Outputs that chose the test and were then thrown away, beside ``trials``."""
    policy: Mapping[str, Any]
    """How thresholds were fixed: the policy's name and parameters."""
    stops_early: bool
    """Whether the data may have ended the audit: then its counts are no fixed sample."""
    points: tuple[ProvenPoint, ...]
    """The judged tests, with their counts and the limits on their error rates that hold together."""
    numbers: tuple[ProvenNumber, ...]
    """Proven number by number, each by its own test at its own share; empty where all is read off the points."""
    budget: RiskBudget
    """How the risk is spent, the verdict among it: fixed before the trials."""
    claim: ClaimPart
    """What was promised, with its curve."""
    mechanism: Part
    """What was audited, by name and parameters."""
    neighbours: Part
    """The pair of datasets, by name and parameters."""
    distinguisher: Part
    """What scored the outputs, by name and parameters."""
    grids: tuple[ScoreGrid, ...]
    """How many scores fell where, on each dataset: one grid for every score."""
    band: Band
    """Points along the first score's curve that hold together."""
    theory: Curve | None
    """The exact curve, where the distinguisher knows it."""
    detectable_advantage_excess: float | None
    """Smallest advantage above the claim that this test would have found with power 0.8; None: no such leak."""
    detectable_epsilon: float | None
    """Smallest epsilon of a Gaussian mechanism, at the reported delta, that it would have found so; None: no such."""
    trials_needed: int | None
    """After an inconclusive verdict: trials that would be enough; None where no feasible number would."""
    key: str
    """The key of all its randomness, by its implementation and numbers."""
    environment: Mapping[str, str]
    """Versions, device and platform."""
    started: str
    """When, in UTC."""
    seconds: float
    """How long it took."""
    diagnoses: tuple[Diagnosis, ...] = ()
    """After a violation: what looks wrong; otherwise what a replay of the code shows. They never decide."""
    violated_at: ViolatedAt | None = None
    """What a violation exceeds, and by how much: the message leads with it."""
    exact_epsilon: float | None = None
    """Epsilon of the exact curve at the record's delta, where the distinguisher knows that curve."""
    look: int = 0
    """Which look at this audit, each with 2^-look of the risk and trials of its own; 0: the only one."""
    releases: str = ""
    """How much of a training an output is: update, transcript or final; empty in records that did not say."""
    steps: int | None = None
    """Steps of a training that an output tells of; None where that cannot be known."""
    state: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What a policy knew beside the counts when it judged them; empty where counts are all."""
    suite: SuitePart | None = None
    """Where it was run in a suite: then risk and key follow from this, and the adjusted p-value from all its audits."""
    diagnose: bool | None = None
    """Whether a violation was to be explained, and code replayed; None in records that did not say."""
    repeatable: bool | None = None
    """Whether a few trials, drawn twice, came out the same; None where that was not tried."""
    gradient_lengths: GradientLengths | None = None
    """How long the differing record's gradient is beside the others and the bound; None where that is not known."""
    one_run: OneRunPart | None = None
    """Of one training with many canaries, which has no trials: the coins that were guessed."""
    scores: ScoresPart | None = None
    """Of scores that somebody gave: how they were judged, and what is vouched for. The band is over all of them."""
    schema: int = SCHEMA
    """Which version of the file's format it is."""

    def __repr__(self) -> str:
        """The answer in one line, as sessions show it; `to_json` has everything."""
        if not self.ran:
            return f"<AuditRecord {self.name!r}: {self.verdict}; {self.reason}>"
        at = f"at delta {self.report_delta:g}"
        proven = f"epsilon >= {at_least(self.epsilon(self.report_delta))} {at}"
        proven += f", delta >= {at_least(self.delta(0.0))} at epsilon 0"
        return (
            f"<AuditRecord {self.name!r}: {self.verdict}; proven {proven}, mu >= {at_least(self.mu)}; "
            f"claimed epsilon {self.claim.epsilon_at(self.report_delta)}; {self.sample}, risk {self.risk:g}>"
        )

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the one that the suite pinned."""
        return self.verdict == self.expect

    @property
    def ran(self) -> bool:
        """Whether trials were drawn; if not, ``reason`` says why and there is nothing else to read."""
        return self.verdict != "could_not_run"

    @property
    def drawn(self) -> bool:
        """Whether there is a curve to plot; of one training only numbers are known."""
        return self.ran and self.one_run is None

    @property
    def sample(self) -> str:
        """The sample in words: so many trials, or canaries of one training."""
        return f"{self.trials:,} trials" if self.one_run is None else f"{self.one_run.canaries:,} canaries"

    @property
    def shares(self) -> Mapping[Statement, float]:
        """Every statement with its share of the risk; together at most the risk."""
        return self.budget.shares

    @property
    def trials_per_side(self) -> int:
        """Trials on each dataset; for given scores, those on the smaller side."""
        return self.trials // 2 if self.scores is None else min(self.judged)

    @property
    def judged(self) -> tuple[int, int]:
        """Trials that were judged without the record and with it."""
        if self.scores is None:
            return self.trials_per_side, self.trials_per_side
        return self.points[0].counts.trials_without, self.points[0].counts.trials_with

    @property
    def conditions(self) -> tuple[str, ...]:
        """Assumptions that the user vouches for, if no code of ours drew the trials."""
        return next((part.conditions for part in (self.one_run, self.scores) if part is not None), ())

    def epsilon(self, delta: float) -> float:
        """Proven lower bound on epsilon at ``delta``; all bounds of a record hold together at its risk.

        At the reported delta by the test fixed for it, at others by the points; everywhere by what the proven delta
        at epsilon 0 implies. Epsilon falls as delta grows.
        """
        if self.one_run is not None:
            return self.one_run.epsilon(delta)
        return max(stated(self.numbers, EpsilonAt(delta=delta)), *proven_epsilon(self._limits, delta=delta))

    def delta(self, epsilon: float) -> float:
        """Proven lower bound on delta at ``epsilon``: at 0 by its own test, at others by the points or implied."""
        if self.one_run is not None:
            return self.one_run.delta(epsilon)
        return max(stated(self.numbers, DeltaAt(epsilon=epsilon)), *proven_delta(self._limits, epsilon=epsilon))

    @property
    def mu(self) -> float:
        """Proven lower bound on mu: no smaller mu holds; never less than its own epsilon and delta imply."""
        if self.one_run is not None:
            return self.one_run.mu
        return max(stated(self.numbers, Mu()), proven_mu(self._limits))

    @property
    def _limits(self) -> tuple[Limits, ...]:
        # without points there is still the trivial limit 1
        own = tuple(point.limits for point in self.points) or (Limits(alpha=1.0, beta=1.0),)
        if self.scores is None:
            return own
        return (
            *own,
            *(Limits(alpha=alpha, beta=beta) for alpha, beta in zip(self.band.alpha, self.band.beta, strict=True)),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data, ready for json.dumps."""
        return plain(self)


def plain(value: Any) -> Any:
    """Reduce a value to JSON: numbers, strings, lists, objects. Infinities become strings, arrays a digest."""
    # first and fast, since a record has thousands of numbers
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    if type(value) in (int, str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float | np.floating):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    if isinstance(value, np.integer):
        return int(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        array = np.asarray(value)
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        return f"array{list(array.shape)} {array.dtype} sha256:{digest}"
    return getattr(value, "name", None) or getattr(value, "__name__", None) or repr(value)
