"""What Opacus's own accountants promise for a step that was taken."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import importlib
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from dpsgd_audit.warn_once import warn_once
from guarantees.checks import checked, require
from guarantees.claim import Claim
from guarantees.laws.profile import law_from_promises
from guarantees.trade_off import TradeOff
from guarantees.vocabulary import ASKED_DELTAS
from mechanisms.adapters.pytorch.for_opacus import LEGACY, OpacusStep, make_private, quiet
from mechanisms.adapters.watched_calls import replaced
from mechanisms.pairs.neighbours import Neighbours, materialise


@dataclasses.dataclass(frozen=True, kw_only=True)
class Account:
    """The books after one step on one dataset."""

    version: str
    rate: float
    noise_multiplier: float
    steps: int
    epsilons: tuple[float, ...]
    """One for each delta; infinite where the accountant has none."""


@checked
def opacus_claim(
    mechanism: OpacusStep,
    neighbours: Neighbours,
    *,
    accountant: Literal["prv", "rdp", "gdp"] = "prv",
    deltas: tuple[float, ...] = ASKED_DELTAS,
) -> Claim:
    """What Opacus's own accountant promises after one step: its epsilon at each of the deltas, together.

    The step is taken on both datasets; where their accounts differ (the sampling rate is 1/len(loader)) the weaker
    promise is the claim, and a warning says so. A step of another ``version`` is accounted for by that version, in a
    process of its own. The accountant's numbers are taken as they are: nothing checks that they are right.

    Args:
      mechanism: ``mechanisms.opacus_step(...)`` with noise.
      neighbours: the pair on which it will be audited.
      accountant: ``"prv"``, ``"rdp"`` or ``"gdp"``; versions below 1.0 have ``"rdp"`` only.
      deltas: where the accountant is asked, each in (0, 1). One alone is a weaker claim, which
        takes many more trials to judge. A delta at which ``"gdp"`` has no epsilon is left out.

    Returns:
      The claim, for one step and add_remove neighbours.

    Raises:
      ValueError: the step adds no noise, the accountant has no epsilon at any of the deltas, or an argument is out of
        range.

    Examples:
      With ``pip install 'dpsgd-audit[opacus]'``:

      >>> import mechanisms
      >>> pair = mechanisms.worst_case_pair(records=3, dimension=100, clip=0.1)
      >>> step = mechanisms.opacus_step(batch_size=2, clip=0.1, noise_multiplier=10.0)
      >>> claim = mechanisms.opacus_claim(step, pair, deltas=(1e-5,))
      >>> claim.relation, claim.unit, claim.parameters["sample_rate"]
      ('add_remove', 'step', 0.5)
    """
    require("deltas", deltas and all(0 < delta < 1 for delta in deltas), "numbers in (0, 1)", deltas)
    if mechanism.version in LEGACY:
        require("accountant", accountant == "rdp", f"'rdp', the only one of {mechanism.version}", accountant)
    require("noise_multiplier", mechanism.noise_multiplier > 0, "> 0 for a claim", mechanism.noise_multiplier)
    books = _books(mechanism, neighbours, accountant, deltas)
    book = max(books, key=lambda book: book.epsilons)
    weaker = np.max([book.epsilons for book in books], axis=0)
    answered = [(epsilon, delta) for epsilon, delta in zip(weaker.tolist(), deltas, strict=True) if epsilon < np.inf]
    require("deltas", answered, f"such that the {accountant} accountant has an epsilon at one of them", deltas)
    # one frame more: this function is checked
    note = unequal((books[0].rate, books[1].rate), stacklevel=3)
    return Claim(
        curve=TradeOff(law_from_promises(answered)),
        name="opacus_claim",
        parameters={
            "accountant": accountant,
            "version": book.version,
            "sample_rate": book.rate,
            "noise_multiplier": book.noise_multiplier,
            "steps": book.steps,
            "deltas": tuple(delta for _, delta in answered),
        },
        relation="add_remove",
        observation="the update of one step",
        source=f"Opacus {book.version}, {accountant} accountant{note}",
    )


class UnequalRatesWarning(UserWarning):
    """The two datasets of a pair are sampled at different rates, which no claim about add_remove neighbours covers."""


class UnequalDivisorsWarning(UserWarning):
    """The sums of the two datasets have different divisors, which no claim about add_remove neighbours covers."""


class NotPoissonWarning(UserWarning):
    """The batches are not drawn as Opacus's accountants assume, so what they promise does not hold."""


def not_poisson(name: str, sampler: str, *, stacklevel: int) -> str:
    """What a claim adds to its source, and warns about, where ``sampler`` is not Poisson's; nothing where it is."""
    if not sampler:
        return ""
    said = f"Opacus's accountant assumes Poisson batches, and {name} reads {sampler}"
    told = (
        f"{said}: its promise does not hold for them. What holds instead is in docs/trainings.md, 'My loader shuffles, "
        "my accountant says Poisson: what holds?'; or call make_private with poisson_sampling=True and read the loader "
        "that it gives back."
    )
    warn_once(told, NotPoissonWarning, stacklevel=stacklevel + 1)
    return f"; {said}"


def unequal(rates: tuple[float, float], divisors: tuple[str, str] = ("", ""), *, stacklevel: int) -> str:
    """What a claim adds to its source, and warns about, where Opacus's rate differs between a pair, or its divisor."""
    if rates[0] != rates[1]:
        kind, how, found = UnequalRatesWarning, "samples at 1/len(loader)", [f"{rate:.4g}" for rate in rates]
        why = (
            ". That happens to every dataset whose size is a multiple of the batch, and it violates the claim by itself"
        )
        choose = "neither len(loader) nor int(N / len(loader)), the divisor of a mean, changes"
    elif divisors[0] != divisors[1]:
        kind, how, found = UnequalDivisorsWarning, "divides by int(N / len(loader))", divisors
        why = ", which violates the claim by itself"
        choose = "it does not change, or set optimizer.expected_batch_size to a constant"
    else:
        return ""
    said = f"Opacus {how}: {found[0]} without the record, {found[1]} with it{why}"
    told = f"{said}. To see what else leaks, choose a pair for which {choose}."
    warn_once(told, kind, stacklevel=stacklevel + 1)
    return f"; {said}"


def _books(step: OpacusStep, neighbours: Neighbours, accountant: str, deltas: tuple[float, ...]) -> list[Account]:
    """Both accounts; those of another version are read where that version can be imported."""
    sides = [np.asarray(materialise(side)) for side in (neighbours.without, neighbours.with_record)]
    if step.version is None:
        return read_accounts(step, sides, accountant, deltas)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(read_accounts, step, sides, accountant, deltas).result()


def read_accounts(
    step: OpacusStep, datasets: Sequence[Any], accountant: str, deltas: tuple[float, ...]
) -> list[Account]:
    """The books after one step on each dataset; the accountant is asked once for those that say the same."""
    found: dict[tuple[float, float, int], tuple[float, ...]] = {}
    with renyi_kept():
        return [_read_account(step, dataset, accountant, deltas, found) for dataset in datasets]


@contextlib.contextmanager
def renyi_kept() -> Iterator[None]:
    """Opacus's accountants compute all Renyi epsilons of their books anew for each delta: here each of them once.

    Versions that have them elsewhere are left as they are.
    """
    try:
        analysis: Any = importlib.import_module("opacus.accountants.analysis.rdp")
        original = analysis._compute_rdp
    except (ImportError, AttributeError):
        yield
        return
    with replaced(analysis, "_compute_rdp", functools.cache(original)):
        yield


def _read_account(
    step: OpacusStep,
    dataset: Any,
    accountant: str,
    deltas: tuple[float, ...],
    found: dict[tuple[float, float, int], tuple[float, ...]],
) -> Account:
    """Take one step, then ask the accountant, unless ``found`` has its answers to the same books."""
    training = make_private(step, dataset, accountant)
    import opacus

    with quiet():
        training.step(seed=0)
        engine = training.engine
        if step.version in LEGACY:
            # 0.14 and 0.15 also count empty batches that they suppose, drawn at random, as steps
            engine.steps = 1
            entry = engine.noise_multiplier, engine.sample_rate, engine.steps
        else:
            entry = _entry(engine.accountant)
        if entry not in found:
            found[entry] = tuple(_epsilon(engine, step, accountant, delta) for delta in deltas)
    noise_multiplier, rate, steps = entry
    return Account(
        version=step.version or opacus.__version__,
        rate=float(rate),
        noise_multiplier=float(noise_multiplier),
        steps=int(steps),
        epsilons=found[entry],
    )


def _epsilon(engine: Any, step: OpacusStep, accountant: str, delta: float) -> float:
    """What the accountant says at a delta; infinity where GDP's says nothing."""
    if step.version in LEGACY:
        return float(engine.get_privacy_spent(delta)[0])
    try:
        return float(engine.get_epsilon(delta))
    except ValueError:
        # its search for a root fails above the delta that it allows at epsilon 0
        if accountant != "gdp":
            raise
        return float("inf")


def _entry(accountant: Any) -> tuple[float, float, int]:
    """Noise multiplier, sampling rate and steps; until 1.0 each accountant kept them in a way of its own."""
    if hasattr(accountant, "history"):
        return accountant.history[0]
    if isinstance(accountant.steps, list):
        return accountant.steps[0]
    return accountant.noise_multiplier, accountant.sample_rate, accountant.steps


MODULE, SEARCH = "opacus.privacy_engine", "get_noise_multiplier"
"""Where ``make_private_with_epsilon`` finds the search: seconds of every trial, where nothing is drawn."""


@contextlib.contextmanager
def searches_kept() -> Iterator[None]:
    """While a training runs, if Opacus is there before."""
    engine = sys.modules.get(MODULE)
    search = getattr(engine, SEARCH, None)
    if engine is None or search is None:
        yield
        return
    with replaced(engine, SEARCH, functools.wraps(search)(functools.partial(_known, search))):
        yield


def _known(search: Callable[..., float], **given: Any) -> float:
    try:
        return _found(search, tuple(sorted(given.items())))
    except TypeError:
        # an argument that cannot be a key
        return search(**given)


@functools.lru_cache(maxsize=256)
def _found(search: Callable[..., float], given: tuple[tuple[str, Any], ...]) -> float:
    return search(**dict(given))
