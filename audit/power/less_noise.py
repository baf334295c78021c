"""How much less noise than a claim about sampled batches promises so many trials find at best, as a multiplier."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from audit.bounds.supporting_lines import tabulate
from audit.power.joint_power import jointly_refuting
from audit.power.power import POWER, TestKind, fewest, moderate
from guarantees.claim import Claim
from guarantees.laws.group import group_law
from guarantees.laws.kept import kept
from guarantees.laws.law import LossLaw
from guarantees.numerics.array import Array
from guarantees.trade_off import TradeOff, compose
from guarantees.vocabulary import PAIR_RELATIONS, Relation

CLAIMS = ("subsampled_gaussian", "poisson_training", "opacus_claim", "jax_privacy_claim")
"""Claims whose parameters say at which rate and with how much noise Poisson batches are released."""
SHARES = (0.97, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.05, 0.02)
"""Of the claimed noise, tried in turn until one is found; then halved between so often:"""
HALVINGS = 4
HIDES_NOTHING = 0.99
"""Of the advantage without any noise: a claim that allows as much has noise in name only."""
TOLERANCE = 1e-3
POINTS = 2**16
"""Of the lattice on which the steps of a training are composed: it moves what is found by less than a halving."""
AT_BEST = "with the best score and threshold, where all other records have gradients of zero"
"""Where so much noise is found: a learned score may find less, and other records' gradients may hide it."""
LARGE_LOSSES = np.geomspace(1e-3, 500.0, 60)
"""Thresholds for the largest loss of a step beside those of its levels."""
LEVELS = np.concatenate([tail := np.logspace(-7, np.log10(0.5), 60), 1 - tail[-2::-1]])
"""False-alarm rates among which the leaky mechanism's best test is looked for."""
COARSE = 8
"""Of these one in so many is asked first."""


class Described(Protocol):
    """A claim or what a record keeps of it."""

    @property
    def name(self) -> str:
        """The constructor that made it."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What that was given."""
        ...

    @property
    def times(self) -> int:
        """How often it was composed."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampled:
    """Poisson batches at a rate, each released with noise."""

    rate: float
    noise_multiplier: float
    steps: int
    relation: Relation
    group: int

    def missed(self, noise_multiplier: float) -> Array:
        """Miss rates at ``LEVELS`` with this noise of the better of two tests of all steps: the best misses no more."""
        together, largest = self._tests(noise_multiplier)
        return np.minimum(np.asarray(together.beta(LEVELS), float), largest)

    def leaks(self, noise_multiplier: float, *, delta: float) -> float:
        """An epsilon that these tests show with this noise, at most the true one."""
        together, largest = self._tests(noise_multiplier)
        shown = np.log(np.maximum(1 - largest - delta, LEVELS) / LEVELS)
        return max(float(together.epsilon(delta)), float(shown.max()))

    def surely_leaks(self, noise_multiplier: float) -> TradeOff:
        """The curve of what all steps surely leak with this noise."""
        return self._tests(noise_multiplier)[0]

    def one_step(self, noise_multiplier: float) -> TradeOff:
        """The curve of one step with this noise."""
        return TradeOff(self._law(noise_multiplier))

    def _law(self, noise_multiplier: float) -> LossLaw:
        return group_law(rate=self.rate, noise_multiplier=noise_multiplier, group=self.group, relation=self.relation)

    def _tests(self, noise_multiplier: float) -> tuple[TradeOff, Array]:
        """The curve of what all steps surely leak, and miss rates at ``LEVELS`` of the largest loss of a step.

        With rare batches and little noise the largest loss is nearly all there is, and no feasible lattice for the
        first keeps the many small losses beside it: all that is sure may then be nothing.
        """
        law = self._law(noise_multiplier)
        composed = compose([(TradeOff(law), self.steps)], tolerance=TOLERANCE, most_points=POINTS)
        certificate = composed.certificate
        sure = composed if certificate is None or certificate.leaked is None else TradeOff(certificate.leaked)
        # a threshold that is rounded has another level than the one it was asked for
        thresholds = np.append(law.threshold(-np.expm1(np.log1p(-LEVELS) / self.steps)), LARGE_LOSSES)
        of_a_step = law.tails(np.sort(thresholds)[::-1])
        alarms, missed = 1 - of_a_step.without_below**self.steps, of_a_step.with_below**self.steps
        return sure, np.interp(LEVELS, [0.0, *alarms, 1.0], [1.0, *missed, 0.0])

    @property
    def never_drawn(self) -> float:
        """Probability that none of the records that differ is in any batch: what is missed without any noise."""
        return (1 - self.rate) ** (self.steps * self.group)

    def hides_nothing(self, advantage: float) -> bool:
        """Whether a promised advantage is nearly that of releases without any noise, which no count tells from it."""
        return advantage >= HIDES_NOTHING * (1 - self.never_drawn)


def sampled(claim: Described) -> Sampled | None:
    """What a claim says about batches and noise; None where it says neither, or not in these words."""
    told = claim.parameters
    if claim.name == "claim_from_history":
        return _of_history(claim)
    rate, noise = told.get("rate", told.get("sample_rate")), told.get("noise_multiplier")
    relation = told.get("relation", "add_remove")
    if claim.name not in CLAIMS or not rate or not noise or relation not in PAIR_RELATIONS:
        return None
    if told.get("sampler", "poisson") != "poisson":
        return None
    return Sampled(
        rate=float(rate),
        noise_multiplier=float(noise),
        steps=int(told.get("steps", 1)) * claim.times,
        relation=relation,
        group=int(told.get("group", 1)),
    )


def _of_history(claim: Described) -> Sampled | None:
    """Of an accountant's history: None where its entries differ in noise or rate."""
    history = claim.parameters["history"]
    kinds = {(float(noise), float(rate)) for noise, rate, _ in history}
    if len(kinds) > 1:
        return None
    ((noise, rate),) = kinds
    return Sampled(
        rate=rate,
        noise_multiplier=noise,
        steps=sum(int(steps) for _, _, steps in history) * claim.times,
        relation=claim.parameters.get("relation", "add_remove"),
        group=1,
    )


def most_noise_found(
    claim: Claim, *, trials_per_side: int, risk: float, test: TestKind, enough: float = POWER
) -> float | None:
    """Largest noise multiplier below the claimed one that the best threshold finds with ``enough`` power.

    Nearly, from below, to about a hundredth of the claimed one. 0: only releases without any noise are found; None: not
    even these, or the claim is not about sampled batches.
    """
    promised = sampled(claim)
    if promised is None:
        return None

    def found_with(share: float) -> bool:
        missed = promised.missed(share * promised.noise_multiplier)
        return is_found(test, claim, missed, trials_per_side=trials_per_side, risk=risk, enough=enough)

    def searched() -> float:
        power = test(claim, trials_per_side=trials_per_side, risk=risk)
        never = power(np.zeros(1), np.array([promised.never_drawn]))
        return math.nan if never[0] < enough else promised.noise_multiplier * _largest(found_with)

    lines = tabulate(claim)
    decided_by = (lines.x, lines.y, lines.slope, *dataclasses.astuple(promised), trials_per_side, risk, enough)
    found = kept(
        f"the noise that is found, {test.__name__}",
        decided_by,
        searched,
        holds=lambda noise: math.isnan(noise) or 0 <= noise < promised.noise_multiplier,
        package="audit",
    )
    return None if math.isnan(found) else found


def misses_half(claim: Claim, noise: float | None, *, delta: float) -> bool:
    """Whether half of the promised noise would be missed, although that leaks no less than a moderate leak does.

    ``noise`` is what ``most_noise_found`` says. Where the claim is so small that even half of its noise leaks less
    (``power.moderate``), nothing is missed that matters.
    """
    promised, wanted = sampled(claim), moderate(claim, delta=delta).epsilon
    if promised is None or wanted is None or (noise is not None and noise >= promised.noise_multiplier / 2):
        return False
    leaks = kept(
        "the epsilon of half the noise",
        (*dataclasses.astuple(promised), delta),
        lambda: promised.leaks(promised.noise_multiplier / 2, delta=delta),
        holds=lambda epsilon: epsilon >= 0,
        package="audit",
    )
    return leaks >= wanted


def trials_that_find(claim: Claim, *, half: bool, risk: float, test: TestKind, more_than: int) -> int | None:
    """Fewest trials, both sides together, that find half of the noise, or else releases without any.

    None where no feasible number does. To two per cent, looked for above ``more_than`` per side, for a claim about
    sampled batches.
    """
    promised = sampled(claim)
    if promised is None:
        return None
    missed = promised.missed(promised.noise_multiplier / 2) if half else np.array([promised.never_drawn])

    def enough(trials_per_side: int) -> bool:
        if half:
            return is_found(test, claim, missed, trials_per_side=trials_per_side, risk=risk)
        power = test(claim, trials_per_side=trials_per_side, risk=risk)
        return bool(power(np.zeros(1), missed)[0] >= POWER)

    lines = tabulate(claim)
    found = kept(
        f"trials that find {'half the' if half else 'no'} noise, {test.__name__}",
        (lines.x, lines.y, lines.slope, missed, risk, more_than),
        lambda: fewest(enough, more_than),
        holds=lambda trials: isinstance(trials, int) and trials >= 0 and trials % 2 == 0,
        package="audit",
    )
    return found or None


def _largest(found_with: Callable[[float], bool]) -> float:
    """The largest share of the noise that is found, from below; 0 where none of those tried is."""
    high = 1.0
    for low in SHARES:
        if found_with(low):
            break
        high = low
    else:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if found_with(middle) else (low, middle)
    return low


def in_its_place(noise: float, promised: Sampled) -> str:
    """A noise multiplier that is found at best, two digits and rounded down, in the place of the promised one."""
    told = f"{promised.noise_multiplier:g}"
    if noise == 0:
        return f"a noise multiplier of 0 in place of {told} {AT_BEST}"
    unit = 10.0 ** (math.floor(math.log10(noise)) - 1)
    return f"a noise multiplier of {math.floor(noise / unit + 1e-9) * unit:g} or less in place of {told} {AT_BEST}"


def told_in(reason: str) -> str | None:
    """What ``in_its_place`` says in a record's reason; None where it says nothing."""
    found = re.search(r"a noise multiplier of \S+(?: or less)? in place of [^\s,]+", reason)
    return None if found is None else f"{found[0]} {AT_BEST}"


def in_so_many_runs(power: float) -> str:
    """How often a leak is found that counts as found."""
    return f"in {10 * power:g} of 10 runs" if (10 * power).is_integer() else f"in {100 * power:g} of 100 runs"


def is_found(
    test: TestKind,
    claim: Claim | TradeOff,
    missed: Array,
    *,
    trials_per_side: int,
    risk: float,
    enough: float = POWER,
) -> bool:
    """Whether some level's power is ``enough``, given the miss rates at ``LEVELS``.

    Power rises and falls once, so around the best of a few levels more are looked at.
    """
    power = test(claim, trials_per_side=trials_per_side, risk=risk)
    if test is jointly_refuting:
        # which asks for all levels at once
        return bool(np.max(power(LEVELS, missed)) >= enough)
    few = np.arange(0, len(LEVELS), COARSE)
    powers = power(LEVELS[few], missed[few])
    best = few[np.argmax(powers)]
    near = np.arange(max(best - COARSE + 1, 0), min(best + COARSE, len(LEVELS)))
    return bool(np.max(powers) >= enough or np.max(power(LEVELS[near], missed[near])) >= enough)
