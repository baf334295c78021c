"""Where Python computes a wrong factor of the lengths of a record that it read: no operation of PyTorch shows that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from audit.diagnosis.explain.numbers_given import returned_at
from audit.diagnosis.explain.places import NOWHERE, Frame, Place, named_at, names_read, place, spelled, statement_at
from audit.diagnosis.explain.watched_code import is_number, is_plain, made_at, tell_lines
from audit.diagnosis.explain.wrong_lengths import SAME, SLACK, near, wrong_factor

Code = Callable[[], object]


def factor_went_wrong(cost: Any, clip: float | None, code: Code) -> tuple[Place, str] | None:
    """Where the number went wrong by which all of a record is multiplied, or its length, and that as a clause.

    ``code`` runs on the draws of the replay.
    """
    found = None if cost is None else wrong_factor(cost, clip)
    return _wrong_in_python(cost, clip, code) if cost is not None and found is None else found


def _wrong_in_python(cost: Any, clip: float | None, code: Code) -> tuple[Place, str] | None:
    weights = cost.weights
    if clip is None or not weights or not all(one.read for one in weights):
        return None
    by, length = weights[0].by, math.hypot(*(one.before for one in weights))
    if any(abs(one.by - by) > SLACK * abs(by) for one in weights):
        return None
    reads: dict[Place, list[float]] = {}
    for number in weights[0].numbers:
        reads.setdefault(place(number.where), []).append(number.value)
    wrong = _mismeasured(reads, [one.before for one in weights], by, length, clip, code)
    if wrong is not None:
        return wrong
    if not any(near(made, length) for own in reads.values() for made in _lengths(own)):
        return None
    made = NOWHERE if by >= 1 else made_at([(code, clip / by)])
    if made is not NOWHERE:
        return made, f", since {spelled(made)} makes its length {clip / by:.4g} when it is {length:.4g}"
    at = factor_at(code, place(weights[0].where), by)
    right = f"{min(1.0, clip / length):.4g} would bound its length of {length:.4g}"
    return at, f", since it is multiplied by {by:.4g}, the factor of {spelled(at)}, where {right}"


def _mismeasured(
    reads: dict[Place, list[float]], parts: Sequence[float], by: float, length: float, clip: float, code: Code
) -> tuple[Place, str] | None:
    """Where numbers were read for whose length, and not the record's, the factor is right."""
    for at, own in reversed(reads.items()):
        for made in _lengths(own):
            if near(made, length):
                continue
            if by < 1 and near(made * by, clip, SAME):
                if near(made, length**2, SAME):
                    squared = f"the square of its length, {made:.4g}, is taken for its length, {length:.4g}"
                    lead = made_at([(code, made)])
                    lead = at if lead is NOWHERE else lead
                    return lead, f", since {squared} ({spelled(lead)})"
                return at, f", since {spelled(at)} measures its length as {made:.4g} when it is {length:.4g}"
        # any short length makes a factor of one: it must be known what was measured
        squares, lengths = (all(any(near(one, part**power) for part in parts) for one in own) for power in (2, 1))
        total = math.sqrt(sum(own)) if squares else math.hypot(*own)
        if by >= 1 and (squares or lengths) and len(own) < len(parts) and total <= clip * (1 + SLACK):
            return at, f", since {spelled(at)} measures its length as {total:.4g} when it is {length:.4g}"
    return None


def _lengths(own: Sequence[float]) -> Iterator[float]:
    """What Python may take for a length that has read lengths of parts, or the squares of them."""
    yield from (math.hypot(*own), sum(own))
    if min(own) >= 0:
        yield math.sqrt(sum(own))


def factor_at(code: Code, at: Place, by: float) -> Place:
    """The line that gives a factor its value, by which a record is multiplied at a place.

    In the function of the place, or where it is handed to that function, or in a function that returns it there.
    """
    numbers, arguments = numbers_at(code, at.own)
    for depth, frame in enumerate(at.own):
        read = numbers.get(frame, {})
        names = [name for name, values in read.items() if any(is_number(one, by, SAME) for one in values)]
        made = next((line for name in names if (line := named_at(frame, name)) is not None), None)
        if made is not None or not names or names[0] not in arguments.get(frame, ()):
            own = Place(own=(made or frame, *at.own[depth + 1 :]))
            returned = returned_at(code, by, called=own.own[0])
            return own if returned is NOWHERE else returned
    return at


def numbers_at(
    code: Code, frames: Sequence[Frame]
) -> tuple[dict[Frame, dict[str, list[float]]], dict[Frame, set[str]]]:
    """The numbers that names hold which lines read, and the arguments of those lines' functions."""
    lines: dict[Frame, Frame] = {}
    for frame in frames:
        own = statement_at(frame)
        last = frame[1] if own is None else own.end_lineno or frame[1]
        lines |= {(frame[0], line): frame for line in range(frame[1] if own is None else own.lineno, last + 1)}
    numbers: dict[Frame, dict[str, list[float]]] = {}
    arguments: dict[Frame, set[str]] = {}

    def told(frame: FrameType, _: int | None) -> None:
        at = lines.get((frame.f_code.co_filename, frame.f_lineno))
        if at is None:
            return
        held = frame.f_locals
        for name in names_read(at):
            if is_plain(held.get(name)):
                numbers.setdefault(at, {}).setdefault(name, []).append(float(held[name]))
        many = frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount
        arguments.setdefault(at, set()).update(frame.f_code.co_varnames[:many])

    tell_lines(code, told)
    return numbers, arguments
