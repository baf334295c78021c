"""What Opacus's own accountants promise for a step that was taken."""

from __future__ import annotations

from typing import Any, Literal

from guarantees.claim import Claim, require
from guarantees.profile import law_from_profile
from guarantees.trade_off import TradeOff
from mechanisms.adapters.for_opacus import OpacusStep, make_private, quiet
from mechanisms.neighbours import Neighbours

ACCOUNTANTS = ("prv", "rdp", "gdp")


def opacus_claim(
    mechanism: OpacusStep,
    neighbours: Neighbours,
    *,
    accountant: Literal["prv", "rdp", "gdp"] = "prv",
    deltas: tuple[float, ...] = (1e-5,),
) -> Claim:
    """What Opacus's own accountant promises after one step: its epsilon at each of the deltas, together.

    The step is taken on both datasets; where their accounts differ (the sampling rate is 1/len(loader)) the weaker
    promise is the claim. One delta is what users ask for; more make the claim stricter, at about a second each.
    """
    require("accountant", accountant in ACCOUNTANTS, f"one of {ACCOUNTANTS}", accountant)
    require("deltas", deltas and all(0 < delta < 1 for delta in deltas), "numbers in (0, 1)", deltas)
    if mechanism.version is not None:
        raise ValueError("the accountant is read in this process; install that version, or state the claim yourself.")
    books = [_account(mechanism, side, accountant) for side in (neighbours.without, neighbours.with_record)]
    import opacus

    # one step of one mechanism: the account with the higher sampling rate promises less
    book = max(books, key=lambda book: book.history[0][1])
    noise_multiplier, rate, steps = book.history[0]
    with quiet():
        epsilons = [max(0.0, float(book.get_epsilon(delta))) for delta in sorted(deltas, reverse=True)]
    # where an epsilon is repeated the smallest delta says most
    profile = dict(zip(epsilons, sorted(deltas, reverse=True), strict=True))
    return Claim(
        curve=TradeOff(law_from_profile(list(profile), list(profile.values()), error=1e-12)),
        name="opacus_claim",
        parameters={
            "accountant": accountant,
            "version": opacus.__version__,
            "sample_rate": rate,
            "noise_multiplier": noise_multiplier,
            "steps": steps,
            "deltas": deltas,
        },
        relation="add_remove",
        observation="the update of one step",
        source=f"Opacus {opacus.__version__}, {accountant} accountant",
    )


def _account(step: OpacusStep, dataset: Any, accountant: str) -> Any:
    """The accountant after one step on a dataset."""
    training = make_private(step, dataset, accountant)
    with quiet():
        training.step(seed=0)
    return training.engine.accountant
