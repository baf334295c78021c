"""Diagnoses in reports: what looks wrong, how much was asked, and which line an annotation points to."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from audit.record.diagnosis_answer import (
    DEPENDENT,
    LINE,
    LINE_NOT_FOLLOWED,
    NOT_ASKED,
    NOT_TOLD,
    POSSIBLE,
    REPEATED,
    Diagnosis,
)
from audit.record.record import AuditRecord
from dpsgd_audit.spelling import counted

REPLAYED = "a replay of the code shows what the trials did not (the verdict depends on trials only)"
"""Heading of lines of code that look wrong although no violation was found."""
HINT = "a hint from the outputs, not a violation"
"""Heading of what the outputs show although no violation was found."""
UNTESTED = " (Seen in the outputs; no test says how sure it is.)"
"""Note behind an answer that has no p-value and no risk."""
MOST_NAMED = 3
"""Most audits that the exception from the sentence on all bounds names."""
Place = tuple[str, int]
"""A file and a line."""
IN_A_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
FAILED_AT = re.compile(r"(?:^|[ (])at ([^:()\n]+\.\w+):(\d+)\b")

IN_SHORT = {
    "bounded": "the record is not bounded",
    "bare": "coordinates without noise",
    "clear": "no noise hides the record",
    "silent": "trials without noise",
    "repeated": "noise repeats between trials",
    "dependent": "trials depend on each other",
    "direction": "moved beside the record's gradient",
    "shared": "noise shared by coordinates",
    "noise_and_batches": "noise depends on the batch",
    "scale_by_trial": "noise scale varies between trials",
    "scale_by_record": "noise scale depends on the record",
    "batches": "batches do not vary as stated",
    "step_moves": "a step shows too much",
    "step_noise": "a step varies too little",
    "steps": "steps not sampled independently",
    "rate": "sampled at another rate",
    "ratio": "too little noise",
    "grain": "noise takes too few values",
    "tails": "noise ends too early",
    "normal": "noise is not normal",
    "laplace": "noise is not Laplace",
    "claim": "claim promises too much",
    "constant": "the release never varies",
    "l1_ratio": "too little noise",
    "whole_numbers": "discrete noise, a continuous claim",
    "telling_event": "one value shows too much",
    "moves_more_than_allowed": "moves more than the claim allows",
    "same_seeds": "moves more than the claim allows",
    "no_part": "the record changes nothing",
    "ends": "noise ends too early",
    "told_noise": "less noise than stated",
    "still": "coordinates that never vary",
    f"{LINE}key_used_twice": "random numbers used twice",
    f"{LINE}randomness_from_data": "randomness depends on the data",
    f"{LINE}in_every_batch": "the record is in every batch",
    f"{LINE}sampled_otherwise": "batches are not as claimed",
    f"{LINE}records_mixed_before_sum": "records mixed before their sum",
    f"{LINE}clipped_after_sum": "only the sum is clipped",
    f"{LINE}not_clipped": "the record is not clipped",
    f"{LINE}noise_scale_from_data": "noise scale depends on the data",
    f"{LINE}released_without_noise": "a release without noise",
    f"{LINE}changed_after_release": "raw data change a noisy value",
    f"{LINE}too_little_noise": "too little noise",
}
"""Text for tables and papers of each answer 'wrong', by its code."""


def in_short(record: AuditRecord) -> str:
    """The first suspect in a few words, with its line of code; empty if nothing looks wrong."""
    for answer in record.diagnoses:
        if answer.wrong and not answer.follows:
            return _fault(answer) + _first_place(answer)
    return ""


def _fault(answer: Diagnosis) -> str:
    return IN_SHORT.get(answer.code, answer.code.removeprefix(LINE).replace("_", " "))


def _first_place(answer: Diagnosis) -> str:
    return "".join(f" at {path}:{line}" for path, line in answer.lines[:1])


def heading(record: AuditRecord) -> str:
    """Heading of a record's diagnoses."""
    if record.verdict == "violation":
        return "what looks wrong"
    return REPLAYED if any(answer.code.startswith(LINE) for answer in record.diagnoses) else HINT


def beside_the_verdict(record: AuditRecord) -> list[Diagnosis]:
    """What looks wrong although no violation was found: findings of a replay, or a hint from the outputs."""
    if record.verdict == "violation":
        return []
    return [answer for answer in record.diagnoses if answer.wrong and not answer.follows]


def depends(record: AuditRecord) -> bool:
    """Whether the record's trials were seen to depend on each other."""
    return any(answer.code == DEPENDENT for answer in record.diagnoses)


def but_for(records: Iterable[AuditRecord], spelled: Callable[[str], str] | None = repr) -> str:
    """Qualification of the sentence that all bounds hold: the audits by name, or their number alone."""
    ways = [(record.name, how) for record in records if (how := not_independent(record))]
    if not ways:
        return ""
    more = f" and {len(ways) - MOST_NAMED} more" if len(ways) > MOST_NAMED else ""
    which = "" if spelled is None else f" ({', '.join(spelled(name) for name, _ in ways[:MOST_NAMED])}{more})"
    how = " or ".join(sorted({how for _, how in ways})[::-1])
    return f", but for {counted(len(ways), 'audit')}{which} whose trials {how}"


def not_independent(record: AuditRecord) -> str:
    """What the record's trials did that independent ones do not; empty batches, equal in release, are independent."""
    if depends(record):
        return "depend on each other"
    found = [answer for answer in record.diagnoses if answer.code == REPEATED and answer.wrong and not answer.follows]
    return "repeat" if any("empty_batch" not in answer.causes for answer in found) else ""


def suspects(diagnoses: tuple[Diagnosis, ...]) -> list[str]:
    """Answers 'wrong' that follow from no other, as sentences with their places."""
    return [
        f"{_placed(answer)}{UNTESTED if _is_untested(answer) else ''}"
        for answer in diagnoses
        if answer.wrong and not answer.follows
    ]


def in_a_row(answers: list[str]) -> str:
    """Answers as sentences of one text, the first after a colon."""
    return " ".join([*answers[:1], *map(as_a_sentence, answers[1:])])


def as_a_sentence(says: str) -> str:
    """The text with a capital; a place keeps its spelling."""
    return says if re.match(r"\S+:\d+: ", says) else says[:1].upper() + says[1:]


def _is_untested(answer: Diagnosis) -> bool:
    return answer.p_value is None and not answer.risk and not answer.code.startswith(LINE)


def without_causes(answer: str) -> str:
    """The measurement without the list of its possible causes."""
    return answer.partition(f" {POSSIBLE}")[0]


def in_prose(record: AuditRecord) -> str:
    """What looks wrong, in a short text: the first suspect of a violation, or that no question found one, or why none
    was asked; all of them beside a verdict that no trial made one."""
    answers = looks_wrong(record.diagnoses) or untold(record.diagnoses)
    shown = answers[:1] if record.verdict == "violation" else answers
    return f"{heading(record)}: {in_a_row(shown)}" if shown else ""


def in_a_paper(record: AuditRecord) -> str:
    """What looks wrong, for a methods section: each fault of the code with its first line, without possible causes."""
    wrong = [answer for answer in record.diagnoses if answer.wrong and not answer.follows]
    faults: dict[str, str] = {}
    for answer in wrong:
        if answer.code.startswith(LINE):
            faults.setdefault(_fault(answer), _first_place(answer))
    if not faults:
        return without_causes(in_prose(record) if looks_wrong(record.diagnoses) else "")
    shown = "" if record.verdict == "violation" else "; the trials did not confirm it"
    return f"a replay of the code finds: {', '.join(fault + place for fault, place in faults.items())}{shown}."


def looks_wrong(diagnoses: tuple[Diagnosis, ...]) -> list[str]:
    """Answers 'wrong' that follow from no other; if there are none, a sentence saying so, if anything was asked.

    Lines of code come first, each with its place.
    """
    wrong = suspects(diagnoses)
    if wrong or not asked(diagnoses):
        return wrong
    return [f"no cause was found{', as far as could be asked' if untold(diagnoses) else ''}."]


def remarks(diagnoses: tuple[Diagnosis, ...]) -> list[str]:
    """Statements that are no tests: which direction leaks more."""
    return [d.says for d in diagnoses if d.risk == 0 and not d.wrong and d.code not in (NOT_ASKED, NOT_TOLD)]


def code_lines(diagnoses: tuple[Diagnosis, ...]) -> list[tuple[str, int]]:
    """Lines of code that look wrong, first suspect first."""
    return list(dict.fromkeys(line for answer in diagnoses if answer.wrong for line in answer.lines))


def not_followed(diagnoses: tuple[Diagnosis, ...]) -> list[str]:
    """Why no line of the code was searched for."""
    return [d.says for d in diagnoses if d.code == LINE_NOT_FOLLOWED]


def _placed(answer: Diagnosis) -> str:
    """The text of an answer after its line, without repeating the line."""
    if not answer.lines:
        return answer.says
    path, line = answer.lines[0]
    named = [(Path(file).name, at) for file, at in answer.lines].count((Path(path).name, line))
    again = re.compile(rf"(?<![\w/.]){re.escape(Path(path).name)}:{line}(?!\d)")
    says = again.sub("this line", answer.says) if named == 1 else answer.says
    return f"{path}:{line}: {re.sub('^this', 'This', says)}"


def untold(diagnoses: tuple[Diagnosis, ...]) -> list[str]:
    """Why questions could not be asked, and what to state so that they can; if none could, any reason.

    Nothing where a line of code is named: more would be told of outputs alone.
    """
    if code_lines(diagnoses):
        return []
    codes = (NOT_TOLD,) if asked(diagnoses) or suspects(diagnoses) else (NOT_TOLD, NOT_ASKED)
    return [d.says for d in diagnoses if d.code in codes]


def asked(diagnoses: tuple[Diagnosis, ...]) -> str:
    """How many questions were asked, and at what total risk."""
    tests = [answer for answer in diagnoses if answer.risk > 0]
    if not tests:
        return ""
    return f"{counted(len(tests), 'question')} asked, at risk {sum(answer.risk for answer in tests):.3g} together"


def places_of(record: AuditRecord, written: str | None = None) -> list[Place]:
    """All known places, best first; ``written`` is where the suite states the audit, as ``file:line``."""
    found = [*code_lines(record.diagnoses)]
    if not record.ran:
        # the last line of the user's own code that the error passed through
        found += [(path, int(line)) for path, line in FAILED_AT.findall(record.reason)[-1:]]
    return [*found, *stated_at(written)]


def stated_at(written: str | None) -> list[Place]:
    """The place that ``file:line`` spells, if it spells one."""
    stated = re.fullmatch(r"(.+):(\d+)", written or "")
    return [(stated[1], int(stated[2]))] if stated else []


def function_place(record: AuditRecord) -> str | None:
    """Place of the audited function, as ``file:line``, if its module is a file below the working folder."""
    named = IN_A_MODULE.fullmatch(str(record.mechanism.parameters.get("function", "")))
    if named is None:
        return None
    path = Path(*named[1].split(".")).with_suffix(".py")
    path = path if path.exists() else Path("src") / path
    try:
        written = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None
    functions = (node for node in written.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return next((f"{path.as_posix()}:{node.lineno}" for node in functions if node.name == named[2]), None)
