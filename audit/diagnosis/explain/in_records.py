"""Findings of a replay as answers that records keep."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import jax

from audit.diagnosis.explain.broken_off import broken_off
from audit.diagnosis.explain.dispatch import TRACERS, Stated, blaming_the_claim, replayed
from audit.diagnosis.explain.findings import Explanation, Finding, Kind
from audit.diagnosis.explain.places import Frame
from audit.diagnosis.explain.sentences import not_followed
from audit.record.diagnosis_answer import LINE, NO_LINE, Diagnosis
from audit.trials.both_sides import is_foreign
from audit.trials.library_files import INSTALLED, is_ours, relative
from audit.trials.user_code_errors import contained
from mechanisms.pairs.neighbours import GradientTable, Neighbours

MOST = 3
"""Most findings that a record keeps, causes first."""
MOST_ENTRIES = 20_000_000
"""Numbers in a dataset above which it is not replayed after a violation."""
MOST_IN_BRIEF = 2**16
"""Numbers in a dataset above which JAX code is not replayed without a violation."""
IN_FULL = "`dpsgd-audit explain` replays it"
QUESTION = "which line?"
AT_OURS = "what looks wrong is at a line of this toolkit's adapter and none of yours"
SIMULATORS = "mechanisms.simulators"


def has_lines(mechanism: Any) -> bool:
    """Whether a mechanism is code of the user's that can be replayed."""
    return mechanism.tracer in TRACERS and not type(mechanism).__module__.startswith(SIMULATORS)


def line_answers(
    mechanism: Any, neighbours: Neighbours, *, key: jax.Array, stated: Stated, brief: bool = False
) -> tuple[tuple[Diagnosis, ...], bool]:
    """The lines that look wrong; where there are none, why the code could not be followed, or ``NO_LINE`` if all was.

    The second says whether the replay measured every release as stated. ``brief`` says that a replay of JAX code may
    take about a second.

    Simulators of ours are left out, since a line of theirs is no line of the user's; so is every other line of ours.
    """
    if not has_lines(mechanism):
        return (), False
    try:
        with contained():
            told = _told(mechanism, neighbours, key, stated, brief)
    except Exception as error:
        told = Explanation(findings=(broken_off(error),))
    suspicions = told.suspicions
    theirs = [one for one in suspicions if not one.lines or not all(is_ours(path) for path, _ in one.lines)]
    ours = [not_followed(f"{AT_OURS} ({one.says.rstrip('.')})") for one in suspicions if one not in theirs]
    answers = tuple(map(_answer, theirs[:MOST] or [*ours, *told.not_judged][:1]))
    compared = stated.due is not None or told.epsilon is not None
    judged = compared and told.rounds and all(one.judged for one in told.rounds)
    if not answers and judged and not told.covered.opaque:
        answers = (NO_LINE,)
    return answers, told.is_as_stated(stated.due)


def _told(mechanism: Any, neighbours: Neighbours, key: jax.Array, stated: Stated, brief: bool) -> Explanation:
    if is_foreign(mechanism) and mechanism.workers:
        why = f"code with workers is not replayed after a violation; {IN_FULL}"
        return Explanation(findings=(not_followed(why),))
    if brief and mechanism.tracer == "jax":
        if entries(neighbours.with_record) > MOST_IN_BRIEF:
            why = f"without a violation a dataset of more than {MOST_IN_BRIEF:,} numbers is not replayed; {IN_FULL}"
            return Explanation(findings=(not_followed(why),))
        follow = importlib.import_module(TRACERS["jax"]).follow
        return blaming_the_claim(follow(mechanism, neighbours, key=key, stated=stated, brief=True), stated)
    if entries(neighbours.with_record) > MOST_ENTRIES:
        why = f"a dataset of more than {MOST_ENTRIES:,} numbers is not replayed; try a smaller pair"
        return Explanation(findings=(not_followed(why),))
    return replayed(mechanism, neighbours, key=key, stated=stated)


def entries(dataset: Any) -> int:
    """Numbers in a dataset, written out."""
    if isinstance(dataset, GradientTable):
        return dataset.records * dataset.dimension
    return sum(getattr(leaf, "size", 1) for leaf in jax.tree.leaves(dataset) if not callable(getattr(leaf, "size", 1)))


def _answer(finding: Finding) -> Diagnosis:
    return Diagnosis(
        code=f"{LINE}{finding.kind}",
        question=QUESTION,
        wrong=finding.kind != Kind.NOT_FOLLOWED,
        says=finding.says,
        risk=0.0,
        assumes="nothing: both datasets were run on the same draws; no trial tests it and it decides no verdict",
        lines=tuple(map(shortened, finding.lines)),
    )


def recalled(answers: Iterable[Diagnosis]) -> Explanation:
    """What a replay found wrong, from a record's answers."""
    lines = [answer for answer in answers if answer.wrong and answer.code.startswith(LINE)]
    return Explanation(
        findings=tuple(
            Finding(kind=Kind(answer.code.removeprefix(LINE)), lines=answer.lines, says=answer.says) for answer in lines
        )
    )


def shortened(frame: Frame) -> Frame:
    """A path from the working folder on, or from the folder of installed libraries on."""
    path, line = relative(frame[0]), frame[1]
    for part in INSTALLED:
        if part in path:
            return path.rpartition(part)[2], line
    return path, line
