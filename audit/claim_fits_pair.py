"""Whether a mechanism, a pair and a claim speak about the same thing: found out before anything is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsgd_audit.spelling import counted
from guarantees.claim import Claim
from mechanisms.pairs.neighbours import Neighbours

if TYPE_CHECKING:
    from mechanisms.contract import BatchMechanism, Mechanism

MAY_COUNT_FEWER = ("claim_from_history", "claim_from_event")
"""Accounts that rightly leave steps out: those on public data, or of correlated noise that composes once a band."""


def counts_other_steps(claim: str, stated: int | None, taken: int | None) -> bool:
    """Whether the claim of this name counts other steps than a training takes: more would hide a leak."""
    if stated is None or taken is None or stated == taken:
        return False
    return stated > taken or claim not in MAY_COUNT_FEWER


def require_matching(step: Mechanism | BatchMechanism, neighbours: Neighbours, claim: Claim) -> None:
    """Refuse a claim about other neighbours, about fewer records, or about more steps than are released."""
    if not isinstance(neighbours, Neighbours):
        raise TypeError(
            f"neighbours must be a pair of datasets, got {type(neighbours).__name__}; build it with "
            "mechanisms.pair(without, with_record), add_record, replace_record or zero_out."
        )
    if not isinstance(claim, Claim):
        raise TypeError(
            f"claim must be one of guarantees, got {type(claim).__name__}; an accountant's numbers become one by "
            "guarantees.claim_from_table([(epsilon, delta)])."
        )
    if not claim.covers(neighbours.relation):
        given = "relation" in neighbours.parameters
        where = f" (an argument of the function that makes it; now {neighbours.relation!r})" if given else ""
        raise ValueError(
            f"the claim is for {claim.relation} neighbours but the pair differs by {neighbours.relation}; "
            f"build the pair with relation={claim.relation!r}{where} or restate the claim."
        )
    if claim.group < neighbours.group:
        raise ValueError(
            f"the claim is about {claim.group} differing record(s) but the pair differs in {neighbours.group}; "
            f"state the claim for group={neighbours.group}, or build the pair with group={claim.group}."
        )
    if step.releases == "update":
        _require_one_step(step.name, claim)


def require_steps(step: Mechanism | BatchMechanism, claim: Claim, taken: int | None) -> None:
    """A training is judged against a claim that counts its steps: more would hide a leak, fewer promise too much."""
    stated = claim.steps
    if step.releases == "update" or stated is None or stated == taken:
        return
    if taken is None:
        # a claim that is given its steps is about a training, also of one
        if stated == 1 and claim.name not in MAY_COUNT_FEWER and "steps" not in claim.parameters:
            raise ValueError(
                f"the claim {claim.describe()} is about one step, and {step.name!r} releases a training's "
                f"{step.releases}; judge that against the claim's .compose(steps), or release one step: "
                "releases='update'."
            )
        return
    if counts_other_steps(claim.name, stated, taken):
        raise ValueError(
            f"the claim {claim.describe()} counts {counted(stated, 'step')}, and the training {step.name!r} takes "
            f"{taken}; state it for {counted(taken, 'step')} (steps={taken}, or one step's claim with "
            f".compose({taken})), or train for {stated}. If the number of steps depends on the data or on chance, "
            "audit releases='final', with a claim for the most steps."
        )


def _require_one_step(step: str, claim: Claim) -> None:
    """Refuse a claim about more than the update: a training's would allow one update too much, and hide its leak."""
    several = claim.times > 1 if claim.steps is None else claim.steps > 1
    whole = claim.steps is None and claim.unit not in ("step", "release")
    if not several and not whole:
        return
    if several:
        said = f"the claim {claim.describe()} is about more than one step"
        remedy = "judge it against one step's claim"
    else:
        said = f"the claim {claim.describe()} is for one {claim.unit}"
        remedy = f"if its numbers are those of one step, say so where you state it: {claim.name}(..., unit='step')"
    raise ValueError(
        f"{said}, and the mechanism {step!r} releases one step's update; {remedy}; or release the whole training: "
        "where the mechanism is made, say releases='transcript' (callable_step(..., releases='transcript'): the steps "
        "along the first axis) or 'final'."
    )
