"""What a replay found, as answers that records keep."""

from __future__ import annotations

import os
from typing import Any

import jax

from audit.diagnosis.explain.dispatch import TRACERS, explain
from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.places import INSTALLED, Frame
from audit.record.diagnosis_answer import Diagnosis
from mechanisms.pairs.neighbours import GradientTable, Neighbours

MOST = 3
"""Findings that a record keeps: the causes stand first."""
MOST_ENTRIES = 20_000_000
"""Numbers in a dataset above which it is not replayed after a violation."""
QUESTION = "which line?"
SIMULATORS = "mechanisms.simulators"


def line_answers(
    mechanism: Any, neighbours: Neighbours, *, key: jax.Array, noise_multiplier: float | None
) -> tuple[Diagnosis, ...]:
    """The lines that look wrong.

    Simulators of ours are left out, since a line of theirs is no line of the user's, and so is code that its user
    wants to run in processes of its own.
    """
    if getattr(mechanism, "workers", 0):
        return ()
    if mechanism.tracer not in TRACERS or type(mechanism).__module__.startswith(SIMULATORS):
        return ()
    if entries(neighbours.with_record) > MOST_ENTRIES:
        return ()
    told = explain(mechanism, neighbours, key=key, noise_multiplier=noise_multiplier)
    return tuple(map(_answer, told.suspicions[:MOST]))


def entries(dataset: Any) -> int:
    """Numbers in a dataset, written out."""
    if isinstance(dataset, GradientTable):
        return dataset.records * dataset.dimension
    return sum(getattr(leaf, "size", 1) for leaf in jax.tree.leaves(dataset) if not callable(getattr(leaf, "size", 1)))


def _answer(finding: Finding) -> Diagnosis:
    return Diagnosis(
        code=f"line:{finding.kind}",
        question=QUESTION,
        wrong=True,
        says=finding.says,
        p_value=1.0,
        risk=0.0,
        assumes="nothing: both datasets were run on the same draws; no trial tests it and it decides no verdict",
        lines=tuple(map(shortened, finding.lines)),
    )


def shortened(frame: Frame) -> Frame:
    """A path from the working folder on, or from the folder of installed libraries on."""
    path, line = frame
    for part in INSTALLED:
        if part in path:
            return path.rpartition(part)[2], line
    inside = os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path
    return inside, line
