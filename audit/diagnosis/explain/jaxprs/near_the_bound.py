"""Records that are little longer than the clipping norm: a factor may be right for very long ones alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import chain

import jax
import numpy as np

from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.findings import Finding, resized
from audit.diagnosis.explain.jaxprs.runs import Program, Run, run_once
from audit.diagnosis.explain.jaxprs.short_rounds import too_little_noise
from audit.trials.threefry import fold_in

LENGTHS = (1.15, 1.8)
"""Of the record, in clipping norms."""
NEAR = 0.1
"""Relative error of a length that is near enough."""
MOST_KEYS = 12
"""Runs until one has the record in its first round."""
TRIES = 4
"""Sizes of the record that are tried for each length."""


def cut_too_late(program: Program, key: jax.Array, runs: Sequence[Run], stated: Stated) -> list[Finding]:
    """That a record of such a length moves a sum further than its noise covers."""
    weighted = any(release.weights for run in runs for release in run.lockstep.meetings.releases)
    if stated.clip is None or stated.due is None or not weighted:
        return []
    # its first round may not have the record
    fresh = (run_once(program, fold_in(key, number), first_round=True) for number in range(len(runs), MOST_KEYS))
    known = next(((number, run) for number, run in enumerate(chain(runs, fresh)) if _length(run)), None)
    if known is None:
        return []
    for scale, run in _runs(program, fold_in(key, known[0]), known[1], stated.clip):
        for told in too_little_noise(program, [run], stated):
            return [dataclasses.replace(told, says=f"{told.says} The record was {resized(scale)} to see this.")]
    return []


def _runs(program: Program, key: jax.Array, plain: Run, clip: float) -> Iterator[tuple[float, Run]]:
    """Runs on the way to these lengths, with how much larger the record is made in each."""
    known = {1.0: _length(plain)}
    for target in LENGTHS:
        for _ in range(TRIES):
            near = sorted((scale for scale in known if known[scale]), key=lambda one: _apart(known[one], target * clip))
            if not near or _apart(known[near[0]], target * clip) < NEAR:
                break
            power = _power(*((scale, known[scale]) for scale in near[:2])) if len(near) > 1 else 1.0
            scale = _round(near[0] * (target * clip / known[near[0]]) ** (1 / power))
            # to the end: noise that is added in parts is seen together only there
            run = run_once(program, key, scale=scale)
            known[scale] = _length(run)
            yield scale, run


def _power(one: tuple[float, float], other: tuple[float, float]) -> float:
    """With which a gradient grows with its record, as two sizes tell it; 1 where they tell nothing."""
    sizes, lengths = (math.log(left / right) for left, right in zip(one, other, strict=True))
    return lengths / sizes if sizes and 0.2 < lengths / sizes < 5 else 1.0


def _round(scale: float) -> float:
    """A size of few digits, for the sentence."""
    return float(f"{scale:.2g}") if scale >= 1 else 1 / float(f"{1 / scale:.2g}")


def _apart(length: float, target: float) -> float:
    return abs(math.log(length / target))


def _length(run: Run) -> float:
    """Of the record in the first round, before its factor; 0 where that is not known."""
    releases = run.lockstep.meetings.releases
    own = [release for release in releases if release.round == releases[0].round and release.cost]
    if not own or any(release.unknown or not release.weights for release in own):
        return 0.0
    length = float(np.linalg.norm([weight.before for release in own for weight in release.weights]))
    return length if math.isfinite(length) else 0.0
