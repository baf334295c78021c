"""DP-SGD with Poisson batches over many steps: certified by our own composition, or as an accountant computes it."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
from types import ModuleType
from typing import Any, Literal

import numpy as np

from guarantees.checks import Positive, Rate, Whole, checked, require
from guarantees.claim import Claim, grouped, poisson_sums, summed
from guarantees.families.event_text import event_from_text
from guarantees.families.renyi import profile_of_renyi
from guarantees.laws.composition import SOURCES
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.group import group_law
from guarantees.laws.kept import kept
from guarantees.laws.law import LossLaw
from guarantees.laws.profile import law_from_pld, law_from_profile
from guarantees.trade_off import ComputedCurve, TradeOff
from guarantees.vocabulary import PairRelation, Relation, Unit

Accountant = Literal["pld", "rdp", "certified"]
SPACING = 1e-4
"""Spacing of the lattice on which dp-accounting composes events, unless another is given."""
SAMPLED_EVENTS = (
    "PoissonSampledDpEvent",
    "SampledWithReplacementDpEvent",
    "SampledWithoutReplacementDpEvent",
    "TruncatedSubsampledGaussianDpEvent",
)
"""Events of dp-accounting that draw a batch: each counts as one step, whatever it releases."""
INSTEAD = "; accountant='certified' needs neither"


def _dp_accounting(*, instead: str = "") -> ModuleType:
    """The module dp-accounting, which is an extra: it pins versions that not everyone can have."""
    try:
        import dp_accounting
    except ImportError as missing:
        raise ImportError(
            "dp-accounting is not installed; `pip install '.[accountants]'` in a clone of dpsgd-audit installs it, and "
            f"so does `pip install dp-accounting`{instead}."
        ) from missing
    return dp_accounting


@checked
def poisson_training(
    *,
    rate: Rate,
    noise_multiplier: Positive,
    steps: Whole,
    relation: PairRelation = "add_remove",
    accountant: Accountant = "pld",
    spacing: Positive | None = None,
    group: int = 1,
) -> Claim:
    """What an accountant promises for DP-SGD over ``steps`` Poisson batches, every noisy sum released.

    It does not cover shuffled batches, nor sums divided by a number that depends on the dataset. The numbers of
    ``"pld"`` are dp-accounting's, trusted for delta >= 1e-10 and refused below.

    Args:
      rate: probability with which each record joins a batch.
      noise_multiplier: standard deviation of the noise over the clipping norm.
      steps: batches, all of them released.
      relation: which neighbours the promise is for.
      accountant: ``"pld"``, dp-accounting's pessimistic privacy loss distribution, both directions; ``"rdp"``, its
        Renyi accountant, looser, symmetrised; ``"certified"``, this package's composition with a certificate. At rate 1
        the curve is Gaussian, in closed form, at any delta. [doroshenko2022; mironov2017; dong2022, corollary
        3.3]
      spacing: lattice of dp-accounting's losses; by default 1e-4, finer for small rates.
      group: in how many records neighbours may differ: each batch holds a binomial number of them. [ganesh2024]

    Returns:
      The claim.

    Raises:
      ValueError: an argument is out of range, or the accountant cannot answer for it.
      ImportError: dp-accounting is not installed; the message says how.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.poisson_training(rate=1.0, noise_multiplier=2.0, steps=4)
      >>> round(claim.epsilon(1e-5), 2)  # four times 0.5-GDP is 1-GDP
      4.38
    """
    one = group_law(rate=rate, noise_multiplier=noise_multiplier, group=group, relation=relation)
    parameters: dict[str, Any] = {"rate": rate, "noise_multiplier": noise_multiplier, "steps": steps}
    pair = "zhu2022, theorem 11" if group == 1 else "ganesh2024"
    if isinstance(one, GaussianLaw) and one.rate == 1:
        curve, source = TradeOff(one).compose(int(steps)), "dong2022, corollary 3.3"
    elif accountant == "certified":
        curve, source = TradeOff(one).compose(int(steps)), f"this package's certified composition; {pair}; {SOURCES}"
        parameters["accountant"] = accountant
    else:
        require("group", group == 1, "1 unless accountant='certified'", group)
        curve, source = _accounted(rate, noise_multiplier, int(steps), relation, accountant, spacing)
        parameters["accountant"] = accountant
    return Claim(
        curve=curve,
        name="poisson_training",
        parameters=parameters | {"relation": relation} | grouped(group),
        relation=relation,
        group=group,
        unit="training",
        steps=int(steps),
        observation=poisson_sums(int(steps)),
        source=source,
    )


@checked
def claim_from_pld(
    with_given_without: Any,
    without_given_with: Any | None = None,
    *,
    relation: Relation,
    unit: Unit = "training",
    source: str = "a privacy loss distribution of dp-accounting",
) -> Claim:
    """The promise of a privacy loss distribution of dp-accounting: one object, or one PMF for each direction.

    Read through its profile and not through its masses, which are those of no pair. Trusted for delta >= 1e-10 and
    refused below; nothing checks that the distribution is that of the mechanism.

    Args:
      with_given_without: dp-accounting's ``PrivacyLossDistribution``, or the PMF of the loss with the record present.
      without_given_with: the PMF of the other direction; by default the object's own, or the same PMF again.
      relation: which neighbours the promise is for; the distribution does not say.
      unit: how much output it covers: a step, an epoch or a training.
      source: who says so, for the report.

    Returns:
      The claim.

    Raises:
      ValueError: ``relation`` or ``unit`` is unknown.

    Examples:
      >>> import guarantees
      >>> from dp_accounting.pld import privacy_loss_distribution
      >>> losses = privacy_loss_distribution.from_gaussian_mechanism(1.0, value_discretization_interval=1e-3)
      >>> round(guarantees.claim_from_pld(losses, relation="add_remove", unit="step").epsilon(1e-5), 2)
      4.38
    """
    return Claim(
        curve=TradeOff(law_from_pld(with_given_without, without_given_with)),
        name="claim_from_pld",
        parameters={"relation": relation, "unit": unit},
        relation=relation,
        unit=unit,
        source=source,
    )


@checked
def claim_from_event(
    event: Any,
    *,
    relation: PairRelation = "add_remove",
    accountant: Literal["pld", "rdp"] = "pld",
    spacing: Positive = SPACING,
    unit: Unit = "training",
) -> Claim:
    """What dp-accounting promises for one of its DpEvents, composed as the event says.

    Nothing checks that the event describes the training.

    Args:
      event: a ``DpEvent``, or the text that one prints, as records keep it.
      relation: ``"add_remove"``, ``"zero_out"`` or ``"substitution"``.
      accountant: ``"pld"``, its pessimistic privacy loss distribution, trusted for delta >= 1e-10 and refused below;
        ``"rdp"``, its Renyi accountant through the closed form of the profile, looser, symmetrised: for events that
        have no distribution.
      spacing: lattice of the distribution's losses, above 0.
      unit: how much output the event covers: a step, an epoch or a training.

    Returns:
      The claim.

    Raises:
      ValueError: an argument is out of range, the accountant has no answer for the event, or the event promises
        nothing.
      ImportError: dp-accounting is not installed; the message says how.

    Examples:
      >>> import dp_accounting, guarantees
      >>> event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(2.0), 4)
      >>> round(guarantees.claim_from_event(event, spacing=1e-3).epsilon(1e-5), 2)  # four times 0.5-GDP is 1-GDP
      4.38
    """
    library = _dp_accounting()
    from dp_accounting import pld, rdp

    event = event_from_text(event) if isinstance(event, str) else event
    neighbours = _neighbouring(library, relation)
    books: Any = rdp.RdpAccountant(neighboring_relation=neighbours)
    if accountant == "pld":
        books = pld.PLDAccountant(neighbours, value_discretization_interval=spacing)
    try:
        books.compose(event)
    except library.UnsupportedEventError as error:
        raise ValueError(
            f"dp-accounting's {accountant} accountant has no answer for this event ({error}); try accountant='rdp', or "
            "hand over the promise itself: guarantees.claim_from_table, guarantees.renyi."
        ) from error
    if books.get_epsilon(0.5) == np.inf:
        raise ValueError(f"dp-accounting gives no finite epsilon for this event, not even at delta 1/2: {event}.")
    return Claim(
        curve=TradeOff(law_from_pld(books._pld) if accountant == "pld" else _renyi_law(books)),
        name="claim_from_event",
        parameters={
            "event": str(event),
            "relation": relation,
            "accountant": accountant,
            "unit": unit,
            **({} if spacing == SPACING else {"spacing": spacing}),
        },
        relation=relation,
        unit=unit,
        steps=_steps_of(event),
        observation="what the event releases",
        source=f"dp-accounting {getattr(library, '__version__', '')} {type(books).__name__}".replace("  ", " "),
    )


def _steps_of(event: Any) -> int | None:
    """Number of steps that an event composes, where all releases of one batch are one step; None if it cannot be seen.

    Releases side by side without a batch of their own may belong to one step or to several.
    """
    kind = type(event).__name__
    if kind == "SelfComposedDpEvent":
        inside = _steps_of(event.event)
        return None if inside is None else inside * int(event.count)
    if kind == "ComposedDpEvent":
        parts = [each for each in event.events if type(each).__name__ != "NoOpDpEvent"]
        return summed([_steps_of(each) for each in parts]) if len(parts) < 2 or all(map(_is_sampled, parts)) else None
    return 1 if kind in SAMPLED_EVENTS or kind in ("GaussianDpEvent", "LaplaceDpEvent") else None


def _is_sampled(event: Any) -> bool:
    inside = event
    while type(inside).__name__ == "SelfComposedDpEvent":
        inside = inside.event
    return type(inside).__name__ in SAMPLED_EVENTS


def _accounted(
    rate: float,
    noise_multiplier: float,
    steps: int,
    relation: Relation,
    accountant: str,
    spacing: Positive | None,
) -> tuple[TradeOff, str]:
    """The curve that dp-accounting computes, with its name and its setting."""
    if accountant == "rdp":
        library = _dp_accounting(instead=INSTEAD)
        rule = "add_remove or zero_out for accountant='rdp' (use 'pld' or 'certified')"
        require("relation", relation != "substitution", rule, relation)
        from dp_accounting import rdp

        books = rdp.RdpAccountant(neighboring_relation=_neighbouring(library, relation))
        books.compose(library.PoissonSampledDpEvent(rate, library.GaussianDpEvent(noise_multiplier)), steps)
        return TradeOff(_renyi_law(books)), "dp-accounting RdpAccountant"
    step = spacing or _default_spacing(rate, noise_multiplier)
    version = _version()
    if version is None:
        # found without the package's metadata, or refused now
        _dp_accounting(instead=INSTEAD)
    law = functools.partial(_kept_pld_law, (rate, noise_multiplier, steps, relation, step), version)
    named = f"dp-accounting PLD, pessimistic, lattice {step:g}"
    return ComputedCurve(law), f"{named}; zhu2022, theorem 11; koskela2020; doroshenko2022"


def _version() -> str | None:
    """Version of dp-accounting, or None if not installed as a package; importing it for that would take a second."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("dp-accounting")
    return None


def _kept_pld_law(decided_by: tuple[float, float, int, Relation, float], version: str | None) -> LossLaw:
    def law() -> LossLaw:
        return _pld_law(*decided_by)

    return law() if version is None else kept("a distribution of dp-accounting", (*decided_by, version), law)


def _neighbouring(library: ModuleType, relation: Relation) -> Any:
    """dp-accounting's name of the relation; its accountants give the same under zero_out as under add_remove."""
    relations = library.NeighboringRelation
    return relations.REPLACE_ONE if relation == "substitution" else relations.ADD_OR_REMOVE_ONE


def _default_spacing(rate: float, noise_multiplier: float) -> float:
    """A power of ten below half of one step's typical loss, between 1e-6 and 1e-4."""
    typical = rate * np.sqrt(np.expm1(min(1 / noise_multiplier**2, 50.0)))
    return float(np.clip(10.0 ** np.floor(np.log10(typical / 2)), 1e-6, 1e-4))


def _pld_law(rate: float, noise_multiplier: float, steps: int, relation: Relation, spacing: float) -> LossLaw:
    neighbours = _neighbouring(_dp_accounting(instead=INSTEAD), relation)
    from dp_accounting.pld import privacy_loss_distribution as losses

    one = losses.from_gaussian_mechanism(
        standard_deviation=noise_multiplier,
        sampling_prob=rate,
        value_discretization_interval=spacing,
        neighboring_relation=neighbours,
    )
    return law_from_pld(one.self_compose(steps))


def _renyi_law(books: Any) -> LossLaw:
    """The law of a Renyi accountant's profile, at the orders that the accountant keeps."""
    epsilons = np.append(0.0, np.geomspace(1e-4, 200.0, 4000))
    return law_from_profile(epsilons, profile_of_renyi(np.asarray(books._orders), np.asarray(books._rdp), epsilons))
