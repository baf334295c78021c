"""Draw trials of a record again: fix its test again, and count them again."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from audit.diagnosis.after_verdict import explain
from audit.record.derive import Audited
from audit.record.diagnosis_answer import LINE_NOT_FOLLOWED, Diagnosis
from audit.record.record import AuditRecord, Part, plain
from audit.suites.suite import Suite
from audit.trials.both_sides import BothSides, both_sides, is_foreign, steps_taken
from audit.trials.fit_trials import learn
from audit.trials.keys import AuditKeys, audit_keys
from audit.trials.repeats import REPEATED
from audit.trials.source import Scored, Source
from audit.trials.user_code_errors import contained
from audit.verify.contradictions import ContradictedError, different
from audit.verify.parts import Parts, key_of, recorded_parts, stated_parts
from distinguishers.contract import Distinguisher
from guarantees.numerics.distributions import hypergeom

UNSEEDED = "the step gave other outputs when the audit repeated a few trials, so they cannot be drawn again"
CHANGING = "the step gives other outputs when the same trials are drawn a second later, so they cannot be drawn again"
FALSE_ALARM = 1e-6
"""Probability that correct counts are called wrong, over all tests and both sides."""
APART = 1.1
"""Seconds after which a clock in seconds gives another seed."""
FIELDS = {"without": "without", "with": "with_record"}
NAMES = tuple(FIELDS)
LEARNT = ("members", "replayed")
"""Parameters of a distinguisher that its fit trials determine."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Redrawn:
    """The result of drawing again."""

    wrong: tuple[str, ...]
    says: str
    """How much was drawn again, and what could not be compared."""
    in_full: bool
    """Whether everything that the trials made was made again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Redraw:
    """An audit that is being drawn again."""

    record: AuditRecord
    audited: Audited
    parts: Parts
    score: Distinguisher
    learnt_from: int
    steps: int | None
    """Number of steps that the built mechanism takes."""
    both: BothSides
    programs: tuple[Scored, Scored]
    keys: AuditKeys

    @property
    def sides(self) -> tuple[Source, Source]:
        """Sources of the judged trials."""
        return self.programs[0].source(self.keys.without), self.programs[1].source(self.keys.with_record)

    def fit_scores(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores of the trials that chose the test."""
        sources = self.programs[0].source(self.keys.fit_without), self.programs[1].source(self.keys.fit_with)
        return sources[0].scores(0, count // 2), sources[1].scores(0, count // 2)


@contained()
def redrawn(
    record: AuditRecord,
    audited: Audited,
    share: float,
    suite: Suite | None = None,
    *,
    drawing: Callable[[int], None] = lambda _: None,
) -> Redrawn:
    """Fix the test again, draw a ``share`` of the trials again and compare; with all trials, everything that they made.

    Counts of a part may exceed the recorded ones in no cell, and errors of a judged test must be about as frequent as
    recorded. ``drawing`` is called with the number of trials a side before the first is drawn. A ContradictedError says
    how the record differs from what is built; another ValueError, a TypeError, an ImportError or a RuntimeError why
    trials cannot be drawn.
    """
    if record.repeatable is False:
        raise ValueError(UNSEEDED)
    parts = _parts(record, suite)
    trials = max(1, round(share * record.trials_per_side))
    drawing(trials)
    try:
        again = _again(record, audited, parts)
        said = [f"{trials:,} of {record.trials_per_side:,} trials per side"]
        stepped, wrong = _compare_steps(again), _compare_test(again, said)
        if trials < record.trials_per_side:
            wrong += _compare_part(again, trials)
        else:
            wrong += _compare_counts(again) or _compare_diagnoses(again, suite, said)
    except ContradictedError:
        _require_repeatable(parts, record)
        raise
    if wrong and not stepped:
        _require_repeatable(parts, record)
    full = trials >= record.trials_per_side and len(said) == 1
    return Redrawn(wrong=(*stepped, *wrong), says="; ".join(said), in_full=full)


def _require_repeatable(parts: Parts, record: AuditRecord) -> None:
    """Refuse foreign code whose trials change within a second, where they differ from the recorded ones."""
    if not is_foreign(parts.mechanism):
        return

    def drawn() -> list[np.ndarray]:
        both, key = both_sides(parts.mechanism, parts.neighbours), key_of(record)
        return [side.copy() for side in both.outputs((key, key), REPEATED, size=REPEATED, deadline=None)]

    before = drawn()
    time.sleep(APART)
    if not all(map(np.array_equal, before, drawn())):
        raise ValueError(CHANGING)


def _parts(record: AuditRecord, suite: Suite | None) -> Parts:
    """Build the parts; an error if mechanism or pair are not the recorded ones."""
    parts = recorded_parts(record) if suite is None else stated_parts(record, suite)
    for what, built, part, kind in (
        ("mechanism", parts.mechanism, record.mechanism, parts.mechanism.kind),
        ("neighbours", parts.neighbours, record.neighbours, parts.neighbours.relation),
    ):
        if not _is_recorded(built, part, kind):
            raise ContradictedError(f"the {what} as built is not the recorded one, {part.describe()}")
    if record.releases != parts.mechanism.releases:
        built, said = parts.mechanism.releases, record.releases
        raise ContradictedError(f"the mechanism as built releases {built!r}, but the record says {said!r}")
    return parts


def _again(record: AuditRecord, audited: Audited, parts: Parts) -> _Redraw:
    """Learn the score again, if it was learned, and prepare both sides."""
    keys, both = audit_keys(key_of(record)), both_sides(parts.mechanism, parts.neighbours)
    costly = is_foreign(parts.mechanism)
    score, learnt_from = learn(parts.distinguisher, both, trials=record.trials_planned, key=keys.learn, costly=costly)
    if not _is_recorded(score, record.distinguisher, ""):
        raise _other_score(score, record.distinguisher, learnt=learnt_from > 0)
    programs = both.scored(score, learnt=learnt_from > 0)
    return _Redraw(
        record=record,
        audited=audited,
        parts=parts,
        score=score,
        learnt_from=learnt_from,
        steps=steps_taken(parts.mechanism, parts.neighbours, both),
        both=both,
        programs=programs,
        keys=keys,
    )


def _other_score(built: Distinguisher, part: Part, *, learnt: bool) -> ValueError:
    """The error for another score than recorded: the fit trials taught another one, or it differs from the start."""
    wrong = different(part.parameters, plain(built.parameters), "drawn again")
    if not learnt or built.name != part.name or not all(said.startswith(LEARNT) for said in wrong):
        return ValueError(f"the distinguisher as built is not the recorded one, {part.describe()}")
    return ContradictedError(
        "the fit trials drawn again teach other scores, so the code gives other outputs than the audited code did, "
        f"or the record was changed ({'; '.join(wrong[:1])})"
    )


def _is_recorded(built: Any, part: Part, kind: str) -> bool:
    """Whether a built part is the recorded one."""
    return (built.name, plain(built.parameters), kind) == (part.name, part.parameters, part.kind)


def _compare_steps(again: _Redraw) -> list[str]:
    """Compare the number of steps, which decides what claim a training may be judged by."""
    return different(again.record.steps, again.steps, "drawn again", key="steps")


def _compare_test(again: _Redraw, said: list[str]) -> list[str]:
    """Fix the test again and compare, unless a time budget cut its fit trials short."""
    stated, own = again.audited.test, again.audited
    test = own.policy.fix(again.score.curve, again.fit_scores, own.goal)
    drawn = test.fit_trials + again.learnt_from
    if stated.fit_trials > drawn:
        return different(stated.fit_trials, drawn, "drawn again", key="fit_trials")
    if stated.fit_trials < drawn:
        said.append("the test was not fixed again: its fit trials were cut short by a time budget")
        return []
    same = test.cuts == stated.cuts and np.array_equal(test.edges, stated.edges)
    return [] if same else ["the test fixed again has other thresholds, or another grid"]


def _compare_part(again: _Redraw, trials: int) -> list[str]:
    """Compare the first trials of each side: they must be contained in the recorded counts, and no different from
    the rest."""
    own = again.audited
    drawn = [side.cells(0, trials, own.test.edges) for side in again.sides]
    wrong = [
        f"{name}: {trials:,} trials drawn again do not give the recorded counts"
        for name, some, all_of_them in zip(NAMES, drawn, (own.tally.without, own.tally.with_record), strict=True)
        if (some > all_of_them).any()
    ]
    return wrong or _unlikely_errors(again.record, drawn[0], drawn[1], trials)


def _compare_counts(again: _Redraw) -> list[str]:
    """Compare the counts of all trials, and the state if the policy keeps one."""
    own = again.audited
    goal = dataclasses.replace(own.goal, trials_per_side=own.tally.trials_per_side)
    tally = own.policy.count(again.sides, own.test, goal)
    wrong = [
        f"{name}: the trials drawn again do not give the recorded counts"
        for name in NAMES
        if not np.array_equal(getattr(tally, FIELDS[name]), getattr(own.tally, FIELDS[name]))
    ]
    return wrong or different(plain(again.record.state), plain(tally.state), "drawn again", key="state")


def _compare_diagnoses(again: _Redraw, suite: Suite | None, said: list[str]) -> list[str]:
    """Measure the diagnoses again and compare, unless a time budget may have cut them short."""
    record = again.record
    # an audit that was to be diagnosed may properly have no answers
    if not (record.diagnose or record.diagnoses):
        return []
    refuted = record.stops_early and record.verdict == "violation"
    cut = record.trials < record.trials_planned and not refuted
    if cut or (suite is not None and suite.time_budget is not None):
        if record.diagnoses:
            said.append("the diagnoses were not measured again: a time budget may have cut them short")
        return []
    bare = dataclasses.replace(record, diagnoses=())
    parts, claim = again.parts, again.audited.goal.claim
    made = explain(bare, parts.mechanism, parts.neighbours, key=key_of(record), sides=again.both, claim=claim)
    own, recorded = _by_file_names(made.diagnoses), _by_file_names(record.diagnoses)
    # if PyTorch is installed, its replay also reports NumPy code, which it cannot follow
    if len(own) != len(recorded):
        own, recorded = (tuple(each for each in some if each.code != LINE_NOT_FOLLOWED) for some in (own, recorded))
    return different(plain(recorded), plain(own), "drawn again", key="diagnoses")


def _by_file_names(answers: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    """Diagnoses without the folders of lines of code, which depend on the working folder of the run."""
    return tuple(
        dataclasses.replace(answer, lines=tuple((os.path.basename(path), line) for path, line in answer.lines))
        for answer in answers
    )


def _unlikely_errors(record: AuditRecord, without: np.ndarray, with_record: np.ndarray, trials: int) -> list[str]:
    """Judged tests whose errors among the redrawn trials do not fit their recorded errors."""
    members = [grid.member for grid in record.grids]
    level, wrong = FALSE_ALARM / (2 * len(record.points)), []
    for point in record.points:
        row = np.asarray(record.grids[members.index(point.member)].edges, np.float32)
        at = int(np.searchsorted(row, np.float32(point.threshold)))
        above = [int(side[members.index(point.member), at + 1 :].sum()) for side in (without, with_record)]
        alarms, caught = above if point.rejects == "above" else [trials - count for count in above]
        for name, drawn, recorded in (
            ("false alarms", alarms, point.counts.false_alarms),
            ("misses", trials - caught, point.counts.misses),
        ):
            if _p_value(drawn, recorded, total=record.trials_per_side, trials=trials) <= level:
                wrong.append(
                    f"{point.target}: {drawn:,} {name} in {trials:,} trials drawn again, {recorded:,} recorded"
                )
    return wrong


def _p_value(drawn: int, errors: int, *, total: int, trials: int) -> float:
    """Twice the smaller tail of the number of errors among ``trials`` of ``total`` with so many: it is hypergeometric.

    Twelve deviations and forty counts around the mean hold all but less than 1e-20 of it.
    """
    mean = trials * (errors / total)
    room = 12 * np.sqrt(mean * (1 - errors / total) * (1 - trials / total)) + 40
    first, last = max(0, errors + trials - total, int(mean - room)), min(errors, trials, int(mean + room))
    values = np.arange(first, last + 1)
    chance = hypergeom.pmf(values, total, errors, trials)
    return 2 * float(min(chance[values <= drawn].sum(), chance[values >= drawn].sum()))
