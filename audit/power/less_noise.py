"""How much less noise than a claim about sampled batches promises the trials can find at best, as a multiplier."""

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
"""Claims whose parameters state the rate and the noise of Poisson batches."""
SHARES = (0.97, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.05, 0.02)
"""Shares of the claimed noise that are tried in turn until one is found."""
HALVINGS = 4
"""Number of halvings between two of these."""
HIDES_NOTHING = 0.99
"""Share of the advantage without any noise from which on a claim has noise in name only."""
TOLERANCE = 1e-3
POINTS = 2**16
"""Points of the lattice on which the steps of a training are composed; its error is less than a halving."""
AT_BEST = "This assumes the best score and threshold, and other records whose gradients are zero"
"""Conditions under which so much noise is found: a learned score may find less, and other gradients may hide it."""
LARGE_LOSSES = np.geomspace(1e-3, 500.0, 60)
"""Thresholds for the largest loss of a step, beside those at its levels."""
LEVELS = np.concatenate([tail := np.logspace(-7, np.log10(0.5), 60), 1 - tail[-2::-1]])
"""False-alarm rates among which the best test of the leaky mechanism is sought."""
COARSE = 8
"""Every so many levels are tried first."""


class Described(Protocol):
    """A claim, or the part of a record that describes it."""

    @property
    def name(self) -> str:
        """Its constructor."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Arguments of the constructor."""
        ...

    @property
    def times(self) -> int:
        """How often it is composed with itself."""
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
        """Miss rates at ``LEVELS`` of the better of two tests with this noise; the best test misses no more."""
        together, largest = self._tests(noise_multiplier)
        return np.minimum(np.asarray(together.beta(LEVELS), float), largest)

    def leaks(self, noise_multiplier: float, *, delta: float) -> float:
        """A lower bound on epsilon with this noise, shown by these tests."""
        together, largest = self._tests(noise_multiplier)
        shown = np.log(np.maximum(1 - largest - delta, LEVELS) / LEVELS)
        return max(float(together.epsilon(delta)), float(shown.max()))

    def surely_leaks(self, noise_multiplier: float) -> TradeOff:
        """A curve of what all steps certainly leak with this noise."""
        return self._tests(noise_multiplier)[0]

    def one_step(self, noise_multiplier: float) -> TradeOff:
        """The curve of one step with this noise."""
        return TradeOff(self._law(noise_multiplier))

    def _law(self, noise_multiplier: float) -> LossLaw:
        return group_law(rate=self.rate, noise_multiplier=noise_multiplier, group=self.group, relation=self.relation)

    def _tests(self, noise_multiplier: float) -> tuple[TradeOff, Array]:
        """A curve of what all steps certainly leak, and miss rates at ``LEVELS`` of the largest loss of a step.

        With rare batches and little noise nearly all is in the largest loss, and no feasible lattice for the first
        keeps the many small losses beside it: it may then show nothing.
        """
        law = self._law(noise_multiplier)
        composed = compose([(TradeOff(law), self.steps)], tolerance=TOLERANCE, most_points=POINTS)
        certificate = composed.certificate
        certain = composed if certificate is None or certificate.leaked is None else TradeOff(certificate.leaked)
        # the levels of rounded thresholds differ from those intended, so both are computed from the law
        thresholds = np.append(law.threshold(-np.expm1(np.log1p(-LEVELS) / self.steps)), LARGE_LOSSES)
        step_tails = law.tails(np.sort(thresholds)[::-1])
        alarms, missed = 1 - step_tails.without_below**self.steps, step_tails.with_below**self.steps
        return certain, np.interp(LEVELS, [0.0, *alarms, 1.0], [1.0, *missed, 0.0])

    @property
    def never_drawn(self) -> float:
        """Probability that none of the differing records is ever drawn: the miss rate without noise."""
        return (1 - self.rate) ** (self.steps * self.group)

    def hides_nothing(self, advantage: float) -> bool:
        """Whether a promised advantage is so close to that without noise that no count tells them apart."""
        return advantage >= HIDES_NOTHING * (1 - self.never_drawn)


def sampled(claim: Described) -> Sampled | None:
    """Rate, noise and steps of a claim about sampled batches; None if it states none, or in other words."""
    parameters = claim.parameters
    if claim.name == "claim_from_history":
        return _of_history(claim)
    rate, noise = parameters.get("rate", parameters.get("sample_rate")), parameters.get("noise_multiplier")
    relation = parameters.get("relation", "add_remove")
    if claim.name not in CLAIMS or not rate or not noise or relation not in PAIR_RELATIONS:
        return None
    if parameters.get("sampler", "poisson") != "poisson":
        return None
    return Sampled(
        rate=float(rate),
        noise_multiplier=float(noise),
        steps=int(parameters.get("steps", 1)) * claim.times,
        relation=relation,
        group=int(parameters.get("group", 1)),
    )


def _of_history(claim: Described) -> Sampled | None:
    """Sampling of a claim from an accountant's history; None if its entries differ in noise or rate."""
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
    """The largest noise multiplier below the claimed one that the best threshold finds with ``enough`` power.

    From below, to about a hundredth of the claimed one. 0: only releases without any noise are found; None: not even
    these, or the claim is not about sampled batches.
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
    """Whether half of the promised noise would be missed, although that leaks at least as much as a moderate leak.

    ``noise`` is the result of ``most_noise_found``. If the claim is so small that even half of its noise leaks less
    (``power.moderate``), nothing that matters is missed.
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
    """The fewest trials (both sides) that find half of the noise or, without ``half``, releases with no noise.

    None if no feasible number does. To two per cent, searched above ``more_than`` per side, for a claim about sampled
    batches.
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
    """The largest share of the noise that is found, from below; 0 if none of those tried is."""
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
    """Say which noise multiplier is found in place of the promised one, in two digits, rounded down."""
    place = f"in place of {promised.noise_multiplier:g}. {AT_BEST}"
    if noise == 0:
        return f"a noise multiplier of 0 {place}"
    unit = 10.0 ** (math.floor(math.log10(noise)) - 1)
    return f"a noise multiplier of {math.floor(noise / unit + 1e-9) * unit:g} or less {place}"


def told_in(reason: str) -> str | None:
    """Find the clause of ``in_its_place`` in a record's reason; None if it is not there."""
    found = re.search(r"a noise multiplier of \S+(?: or less)? in place of [^\s,]+", reason)
    return None if found is None else f"{found[0].rstrip('.')}. {AT_BEST}"


def in_so_many_runs(power: float) -> str:
    """Say in how many runs a leak is found, for this power."""
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
    """Whether the power at some level is ``enough``, given the miss rates at ``LEVELS``.

    Power has a single peak, so that only levels around the best of a few are computed.
    """
    power = test(claim, trials_per_side=trials_per_side, risk=risk)
    if test is jointly_refuting:
        # it computes all levels at once
        return bool(np.max(power(LEVELS, missed)) >= enough)
    few = np.arange(0, len(LEVELS), COARSE)
    powers = power(LEVELS[few], missed[few])
    best = few[np.argmax(powers)]
    near = np.arange(max(best - COARSE + 1, 0), min(best + COARSE, len(LEVELS)))
    return bool(np.max(powers) >= enough or np.max(power(LEVELS[near], missed[near])) >= enough)
