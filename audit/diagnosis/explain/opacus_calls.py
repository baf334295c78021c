"""What a training tells Opacus: the line of the argument that a finding follows from."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.handed_over import NEAR, argument_of, assigned_at, built_at, handed_as
from audit.diagnosis.explain.numbers_given import DEVIATIONS
from audit.diagnosis.explain.places import NOWHERE, Place, frames_of, spelled
from audit.diagnosis.explain.sentences import not_followed
from audit.diagnosis.explain.watched_code import callers, is_theirs
from mechanisms.adapters.watched_calls import calls_told_to

ENGINE, SAMPLER = "opacus/privacy_engine.py", "opacus/utils/uniform_sampler.py"
OPTIMIZERS, ADAPTIVE = "opacus/optimizers/", "opacus/optimizers/adaclipoptimizer.py"
LOSSES = "torch/nn/functional.py"
SCHEDULERS = "opacus/schedulers/noise_scheduler.py"
"""Opacus's file with the functions that change the noise over the steps."""
Code = Callable[[], object]


@dataclasses.dataclass
class Told:
    """What the first call that makes a training private was given, and what the training then did."""

    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    call: Place = NOWHERE
    multiplier: float | None = None
    reads_poisson: bool = False
    """Whether batches of Opacus's sampler are read."""
    reductions: set[str] = dataclasses.field(default_factory=set)
    """Reductions of the losses."""
    skipped: Place = NOWHERE
    """Where the training itself first tells the optimizer that a step is to be skipped."""
    counts_batch: bool = False
    """Whether an adaptive clipping norm is made of the batch's own size."""

    def at(self, name: str) -> Place:
        """Line of an argument."""
        return argument_of(self.call, name, self.given.get(name))


def told_to_opacus(code: Code) -> Told | None:
    """What one run of the code tells Opacus; None where it makes nothing private."""
    if "opacus" not in sys.modules:
        return None
    told = Told()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        own, name = frame.f_code, frame.f_code.co_name
        if own.co_filename.endswith(ENGINE) and name.startswith("make_private"):
            given = {one: frame.f_locals.get(one) for one in own.co_varnames[: own.co_argcount + own.co_kwonlyargcount]}
            if told.call is NOWHERE and (lines := callers(frame)):
                told.given, told.call = given, Place(own=lines)
            if told.multiplier is None:
                told.multiplier = given.get("noise_multiplier")
        elif name == "signal_skip_step" and OPTIMIZERS in own.co_filename and frame.f_locals.get("do_skip"):
            by_hand = frame.f_back is not None and is_theirs(frame.f_back)
            told.skipped = Place(own=callers(frame)) if by_hand and told.skipped is NOWHERE else told.skipped
        elif own.co_filename.endswith(ADAPTIVE) and name == "update_max_grad_norm":
            told.counts_batch = "sample_size" in own.co_names
        elif own.co_filename.endswith(SAMPLER) and name == "__iter__":
            told.reads_poisson = True
        elif own.co_filename.endswith(LOSSES) and isinstance(frame.f_locals.get("reduction"), str):
            told.reductions.add(frame.f_locals["reduction"])

    with calls_told_to(watch):
        code()
    return None if told.call is NOWHERE else told


def not_poisson(code: Code) -> tuple[Place, str] | None:
    """The line because of which batches are not Poisson batches, and that as a clause."""
    told = told_to_opacus(code)
    if told is None or told.reads_poisson:
        return None
    if told.given.get("poisson_sampling") is False:
        at = told.at("poisson_sampling")
        return at, f"make_private is given poisson_sampling=False at {spelled(at)}"
    return told.call, f"the loader of Poisson batches that make_private returns at {spelled(told.call)} is not read"


def rate_of_loader(code: Code) -> tuple[Place, str] | None:
    """The line that gives Opacus the loader whose length makes the rate, and that as a sentence."""
    told = told_to_opacus(code)
    if told is None or not told.reads_poisson:
        return None
    at = told.at("data_loader")
    return at, f" Opacus samples at 1/len(loader), of the loader given at {spelled(at)}."


def reduced_otherwise(code: Code) -> tuple[Place, str] | None:
    """The line that tells Opacus of a sum where the losses are means over the batch, and that as a sentence."""
    told = told_to_opacus(code)
    if told is None or told.given.get("loss_reduction") != "sum" or told.reductions != {"mean"}:
        return None
    at = told.at("loss_reduction")
    return at, f' The loss is a mean over the batch, but make_private is given loss_reduction="sum" at {spelled(at)}.'


FOLLOWS = frozenset(
    (Kind.CLIPPED_AFTER_SUM, Kind.NOISE_SCALE_FROM_DATA, Kind.RANDOMNESS_FROM_DATA, Kind.CHANGED_AFTER_RELEASE)
)
"""What a clipping norm looks like that follows a noisy count of the clipped records."""


def adaptive(findings: Sequence[Finding], code: Code, *, counted: bool) -> list[Finding]:
    """The findings, where Opacus adapts the clipping norm with one in place of all that only follow from that.

    ``counted`` says whether the datasets differ in their number of records.
    """
    own = [one for one in findings if one.kind in FOLLOWS and any(OPTIMIZERS in path for path, _ in one.lines)]
    told = told_to_opacus(code) if own else None
    if told is None or told.given.get("clipping") != "adaptive":
        return [*findings]
    at = Place(own=told.at("clipping").own[:1])
    adapts = f'clipping="adaptive" at {spelled(at)} makes the clipping norm of a noisy count of clipped records'
    says = f"{adapts}, which Opacus divides by the batch's own size: no noise covers that, and the noise depends on it."
    cause = Finding(kind=Kind.NOISE_SCALE_FROM_DATA, lines=frames_of([at]), says=says)
    if not (told.counts_batch and counted):
        cause = not_followed(f"{adapts}, which is not followed", at)
    return [cause, *(one for one in findings if one not in own)]


def divided_by_count(code: Code, at: Place, number: Place) -> tuple[Place, str] | None:
    """The line that tells Opacus of a mean, where that divides by a number of records; and that as a sentence."""
    if not any(OPTIMIZERS in path for path, _ in at.library):
        return None
    told = told_to_opacus(code)
    if told is None or number.own[:1] != told.call.own[:1] or told.given.get("loss_reduction") != "mean":
        return None
    says = ' With loss_reduction="mean" Opacus divides the noisy sum by int(N / len(loader)), with "sum" by nothing.'
    return told.at("loss_reduction"), says


def multiplier_set(deviation: float, bounds: Sequence[float], code: Code) -> tuple[Place, str] | None:
    """Where a library that adds the noise got its multiplier, and that as a sentence; None if no line shows it."""
    numbers = [*(deviation / bound for bound in bounds), deviation]
    for number in numbers:
        if (handed := handed_as(code, number, DEVIATIONS)) is not None:
            return handed[1], f" {handed[0]}={number:.4g} is set at {spelled(handed[1])}."
        if (found := assigned_at(code, number, DEVIATIONS)) is not NOWHERE:
            return found, f" The {number:.4g} is set at {spelled(found)}."
    told = told_to_opacus(code)
    chosen = None if told is None or "target_epsilon" not in told.given else told.multiplier
    if told is not None and chosen is not None and any(abs(number - chosen) <= NEAR * number for number in numbers):
        at, target = told.at("target_epsilon"), told.given["target_epsilon"]
        return at, f" make_private_with_epsilon chooses it for target_epsilon={target:g} at {spelled(at)}."
    made = built_at(code, SCHEDULERS)
    if made is NOWHERE:
        return None
    return made, f" The noise scheduler made at {spelled(made)} changes the multiplier from step to step."
