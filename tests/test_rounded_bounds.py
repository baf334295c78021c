"""No sentence of ours rounds a bound to the nearest: 'at most' goes up and 'at least' down, by two functions."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path.relative_to(ROOT)
    for package in ("audit", "guarantees", "mechanisms", "distinguishers")
    for path in (ROOT / package).rglob("*.py")
)
UPPER = re.compile(r"(at most|up to|no more than|never more than|within|<=|≤|\\le)( (epsilon|delta|mu|about))? ?\$?$")
LOWER = re.compile(r"(at least|no less than|never less than|>=|≥|\\ge)( (epsilon|delta|mu|about))? ?\$?$")
AFTER = re.compile(r"^%?\$? or (more|less|fewer)\b")
DIGITS = re.compile(r":,?\.")
"""In every source whose f-strings say how many digits they write; parsing the others takes a second."""
CUT = re.compile(r"^,?\.\d[gfe%]$")


def nearest(text: ast.JoinedStr) -> list[str]:
    """Bounds of an f-string that are written with a number of digits, which rounds to the nearest."""
    found = []
    for at, part in enumerate(text.values):
        if not isinstance(part, ast.FormattedValue) or part.format_spec is None:
            continue
        spec = "".join(one.value if isinstance(one, ast.Constant) else "4" for one in part.format_spec.values)
        before, after = (
            text.values[i].value if 0 <= i < len(text.values) and isinstance(text.values[i], ast.Constant) else ""
            for i in (at - 1, at + 1)
        )
        if CUT.match(spec) and (UPPER.search(before) or LOWER.search(before) or AFTER.search(after)):
            found.append(f"line {part.lineno}: {before[-20:]!r} {ast.unparse(part.value)}:{spec} {after[:12]!r}")
    return found


def in_source(source: str) -> list[str]:
    if not DIGITS.search(source):
        return []
    return [each for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr) for each in nearest(node)]


def test_the_search_finds_what_it_looks_for():
    assert (
        len(
            in_source(
                'f"at most {x:.4g} is, at least {y:.{n}g} is, {z:.2f} or more, epsilon {w:.3g} is, at most {v:,}"'
            )
        )
        == 3
    )


def test_no_bound_is_rounded_to_the_nearest():
    found = {str(path): said for path in SOURCES if (said := in_source((ROOT / path).read_text()))}
    assert not found, "\n".join(f"{path}: {each}" for path, said in found.items() for each in said)
