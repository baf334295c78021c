"""A trade-off plot in characters: dots of Braille where the encoding has them, plain letters where not."""

from __future__ import annotations

import dataclasses
import shutil
import string
import sys
from collections.abc import Callable

import numpy as np

from audit.report.escaping import visible
from guarantees.claim import Claim
from guarantees.numerics.array import Array

ROWS = 12
"""Rows of characters between the axes."""
NARROWEST, WIDEST = 20, 60
"""Columns between the axes; a terminal with less room gets no plot."""
MARGIN = 6
"""Columns that the axis takes at the left."""
BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the eight dots of a Braille character, by row and column."""

Pixels = set[tuple[int, int]]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """A falling curve to draw, read both ways."""

    name: str
    beta: Callable[[Array], Array]
    """Misses at given false alarms."""
    alpha: Callable[[Array], Array]
    """False alarms at given misses."""


def claim_line(claim: Claim, name: str | None = None) -> Line:
    """A claim's curve."""
    return Line(name=name or claim.describe(), beta=claim.beta, alpha=claim.reverse.beta)


def falling_line(name: str, alpha: Array, beta: Array) -> Line:
    """Points of tests as a curve from (0, 1) to (1, 0): what errs so often may err more often."""
    order = np.lexsort((beta, alpha))
    rates = np.concatenate([[0.0], alpha[order], [1.0]])
    falling = np.minimum.accumulate(np.concatenate([[1.0], beta[order], [0.0]]))
    return Line(
        name=name,
        beta=lambda given: np.interp(given, rates, falling),
        alpha=lambda given: np.interp(given, falling[::-1], rates[::-1]),
    )


def print_plot(lines: list[Line], *, asked: bool) -> None:
    """Draw on a terminal, or wherever it was asked for, as wide as there is room."""
    if asked or sys.stdout.isatty():
        width = shutil.get_terminal_size((80, 24)).columns
        for row in trade_off_plot(lines, width=width, unicode=speaks_unicode(sys.stdout.encoding)):
            print(row)


def speaks_unicode(encoding: str | None) -> bool:
    """Whether Braille can be written in this encoding."""
    try:
        chr(BRAILLE).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def trade_off_plot(lines: list[Line], *, width: int, unicode: bool) -> list[str]:
    """Rows of text, at most ``width`` wide; none where that is too little. Several curves have letters and a legend."""
    columns = min(width - MARGIN - 1, WIDEST)
    if columns < NARROWEST:
        return []
    names = string.ascii_uppercase[: len(lines)] if len(lines) > 1 else ""
    cells = _dotted(lines, columns) if unicode else _lettered(lines, columns, names or "*")
    if unicode:
        _label(cells, lines, columns, names)
    for column in range(columns):
        cells.setdefault((column, column * ROWS // columns), "·" if unicode else ".")
    legend = [f"{letter}  {visible(line.name)}" for letter, line in zip(names, lines, strict=False)]
    title = "misses (up) by false alarms (to the right)"
    return [row[: width - 1] for row in (title, *_framed(cells, columns, unicode=unicode), *legend)]


def pixels(line: Line, *, across: int, down: int) -> Pixels:
    """The boxes of a grid over the unit square, counted from the upper left, that the curve is drawn in.

    One for every column, where the curve passes its middle, and one for every row: steep parts have no gaps.
    """
    x, y = (np.arange(across) + 0.5) / across, (np.arange(down) + 0.5) / down
    alpha, beta = np.concatenate([x, line.alpha(y)]), np.concatenate([line.beta(x), y])
    places = np.minimum(alpha * across, across - 1).astype(int), np.minimum((1 - beta) * down, down - 1).astype(int)
    return set(zip(places[0].tolist(), places[1].tolist(), strict=True))


def _dotted(lines: list[Line], columns: int) -> dict[tuple[int, int], str]:
    """Characters by cell, two dots across and four down in each."""
    bits: dict[tuple[int, int], int] = {}
    for line in lines:
        for x, y in pixels(line, across=2 * columns, down=4 * ROWS):
            cell = x // 2, y // 4
            bits[cell] = bits.get(cell, 0) | DOTS[y % 4][x % 2]
    return {cell: chr(BRAILLE + found) for cell, found in bits.items()}


def _lettered(lines: list[Line], columns: int, letters: str) -> dict[tuple[int, int], str]:
    """Characters by cell; the first curve wins where two meet."""
    cells: dict[tuple[int, int], str] = {}
    for letter, line in zip(letters, lines, strict=True):
        for cell in pixels(line, across=columns, down=ROWS):
            cells.setdefault(cell, letter)
    return cells


def _label(cells: dict[tuple[int, int], str], lines: list[Line], columns: int, names: str) -> None:
    """Put each letter on its curve, at a place of its own in the half where curves are furthest apart."""
    taken: Pixels = set()
    for number, (letter, line) in enumerate(zip(names, lines, strict=False), 1):
        wanted = number * columns // (2 * len(names) + 2)
        free = pixels(line, across=columns, down=ROWS) - taken
        cell = min(free, key=lambda place: (abs(place[0] - wanted), place), default=None)
        if cell is not None:
            cells[cell] = letter
            taken.add(cell)


def _framed(cells: dict[tuple[int, int], str], columns: int, *, unicode: bool) -> list[str]:
    """The rows with axes and their numbers."""
    upright, tick, corner, along = ("│", "┤", "└", "─") if unicode else ("|", "+", "+", "-")
    rows = []
    for row in range(ROWS):
        number = {0: "1.0", ROWS // 2: "0.5"}.get(row, "")
        edge = tick if number else upright
        rows.append(f"{number:>4} {edge}" + "".join(cells.get((column, row), " ") for column in range(columns)))
    rows = [row.rstrip() for row in rows]
    middle = columns // 2
    numbers = f"{'0':<{middle}}{'0.5':<{columns - middle - 3}}1.0"
    return [*rows, f"{'0.0':>4} {corner}{along * columns}", f"{'':{MARGIN}}{numbers}"]
