"""Laplace noise on one number whose scale is too small for what the record moves and the epsilon that is claimed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.jaxprs.rounds import SLACK, is_judged
from audit.diagnosis.explain.jaxprs.runs import Program, Run
from audit.diagnosis.explain.numbers_given import holder, not_handed, went_wrong
from audit.diagnosis.explain.places import Place, among_records, frames_of, spelled
from audit.diagnosis.explain.sentences import not_followed
from guarantees.numerics.rounding import at_most


def too_small_scale(program: Program, runs: Sequence[Run], epsilon: float | None) -> list[Finding]:
    """That the record moves some coordinate by more than epsilon times the scale of its noise.

    Only where all that is drawn is the noise of one release, which linear maps alone lead to the output: then no later
    noise, no sampling and no choice hides what that coordinate tells.
    """
    for run in runs if epsilon is not None else ():
        release = _all_that_is_drawn(run)
        if epsilon is None or release is None:
            continue
        scales = np.sqrt(release.variance / 2).ravel()
        costs = np.abs(release.moved).ravel() / scales
        top = int(np.argmax(costs))
        if not (1 + SLACK) * epsilon < costs[top] < np.inf:
            continue
        scale, moved = float(scales[top]), float(np.abs(release.moved).ravel()[top])
        lead = _lead(program, run, release, right=moved / epsilon, wrong=scale)
        origin = release.origin if isinstance(release.origin, Place) else release.at
        what = "what is computed from the records" if scales.size == 1 else "one coordinate of what is computed"
        says = (
            f"The record moves {what} at {spelled(origin)} by {moved:.4g}. The Laplace noise drawn at "
            f"{spelled(release.draw)} and added at {spelled(release.at)} has scale {scale:.4g}: epsilon "
            f"{costs[top]:.4g}, but the claim allows {epsilon:.4g}; a scale of {moved / epsilon:.4g} is due."
        )
        return [Finding(kind=Kind.TOO_LITTLE_NOISE, lines=frames_of([lead, release.at, release.draw]), says=says)]
    return []


def cost_in_all(runs: Sequence[Run]) -> float | None:
    """The epsilon of all releases if everything is told that they cover; None where Laplace draws alone do not."""
    costs = []
    for run in runs:
        releases = run.lockstep.meetings.releases
        if not releases or not all(_is_laplace(one) and one.covering <= run.lockstep.laplace for one in releases):
            return None
        costs.append(sum(one.epsilon for one in releases))
    return max(costs, default=None)


def not_compared(runs: Sequence[Run], epsilon: float | None) -> list[Finding]:
    """That Laplace noise may cost more than is claimed, where nobody follows how much of it is told."""
    most = None if epsilon is None else cost_in_all(runs)
    if epsilon is None or most is None or most <= (1 + SLACK) * epsilon:
        return []
    why = f"the Laplace noise costs up to epsilon {at_most(most)} in all, and the claim allows {epsilon:.4g}"
    at = runs[0].lockstep.meetings.releases[0].at
    return [not_followed(f"{why}: noise on several numbers is not compared any further", at)]


def _all_that_is_drawn(run: Run) -> Release | None:
    """The one release of a run whose only draw is its Laplace noise, as it was added; None where there is more."""
    meetings = run.lockstep.meetings
    charged = meetings.together.charged(meetings.releases)
    if len(charged) != 1 or charged[0] is not meetings.releases[0]:
        return None
    (release,) = charged
    every = set(range(len(run.lockstep.keys.draws)))
    if not every == release.covering == run.lockstep.laplace or not _is_laplace(release):
        return None
    return release if release.linear and is_judged(charged) else None


def _is_laplace(release: Release) -> bool:
    """Whether each coordinate of its noise, made of Laplace draws, is one of their numbers."""
    terms = release.terms
    return terms is not None and release.exact and bool(np.all(np.sum(terms.times != 0, axis=-1) == 1))


def _lead(program: Program, run: Run, release: Release, *, right: float, wrong: float) -> Place:
    """The line to look at first: where the scale went wrong, or who hands it over."""
    code, last = program.trace_again, release.resized
    scaled = release.draw if last is None else last.at
    lost = went_wrong(code, [scaled, release.draw, release.at], right, wrong)
    if (told := lost or holder(code, release.draw, wrong)) is not None:
        return told
    lead = among_records(scaled, run.lockstep.meetings.readers)
    return not_handed(code, scaled, wrong) if lead == scaled else lead
