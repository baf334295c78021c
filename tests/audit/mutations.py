"""Documents with something wrong in them: a value replaced, a key lost, misspelt or added, a list cut."""

import copy
import json
import math
from typing import Any

from hypothesis import strategies as st

WORDS = (
    "",
    "x",
    "inf",
    "nan",
    "one_round",
    "gaussian",
    "violation",
    "ab\x1b[2J\n|c<b>",
    "[red]",
    "é" * 9,
    "0.5",
    "m:n",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    10**6,
    2**32,
    2**63,
    10**400,
    0.0,
    0.5,
    1.0,
    -0.5,
    1e-300,
    1e308,
    math.inf,
    -math.inf,
    math.nan,
)
ODD = "azAZ09 \0\t\n\r\x1b\"'\\\x7f\x85\xa0\u00e9\u03b1\u2028\u2029\ufeff\uffff\U0001f600\U0010ffff"
"""Characters of every kind that a format may stumble over. A table of all of Unicode takes two seconds to make."""
JUNK = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(NUMBERS),
    st.sampled_from(
        [True, False, [], {}, [[]], [0.1, 0.5], ["a", "b"], {"kind": "gaussian"}, {"kind": 3}, {"a": {"b": 1}}]
    ),
    st.text(ODD, max_size=5),
    st.integers(),
    st.floats(),
)
CHANGES = ("replace", "replace", "delete", "rename", "add", "cut", "repeat", "swap")


def places(document: Any, path: tuple = ()) -> list[tuple]:
    """Every place inside a document, lists only at a few of their ends."""
    found = [path] if path else []
    if isinstance(document, dict):
        for key, value in document.items():
            found += places(value, (*path, key))
    elif isinstance(document, list):
        for index in sorted({0, len(document) // 2, len(document) - 1} & set(range(len(document)))):
            found += places(document[index], (*path, index))
    return found


@st.composite
def mutated(draw: st.DrawFn, documents: list[Any], *, most: int = 3, junk: st.SearchStrategy = JUNK) -> Any:
    """One of the documents with one to ``most`` changes."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, most))):
        known = places(document)
        if not known:
            return document
        path = known[draw(st.integers(0, len(known) - 1))]
        inside = document
        for step in path[:-1]:
            inside = inside[step]
        _change(draw, inside, path[-1], junk)
    return document


def _change(draw: st.DrawFn, inside: Any, place: Any, junk: st.SearchStrategy) -> None:
    change, value = draw(st.sampled_from(CHANGES)), inside[place]
    if change == "delete":
        del inside[place]
    elif change == "rename" and isinstance(inside, dict):
        inside[str(place)[:-1] + "s"] = inside.pop(place)
    elif change == "add" and isinstance(value, dict):
        value[draw(st.sampled_from(["extra", "kind", "step", "risk", "seed", "name"]))] = copy.deepcopy(draw(junk))
    elif change == "cut" and isinstance(value, list | str):
        inside[place] = value[: len(value) // 2]
    elif change == "repeat" and isinstance(value, list):
        inside[place] = value + value
    elif change == "swap" and isinstance(value, list):
        inside[place] = value[::-1]
    else:
        inside[place] = copy.deepcopy(draw(junk))


def toml(document: dict[str, Any]) -> str:
    """A document as TOML, all of it inline below the top; what TOML cannot say is left out."""
    lines = [f"{_key(key)} = {_value(value)}" for key, value in document.items() if key != "audit"]
    audits = document.get("audit", [])
    if not isinstance(audits, list) or not all(isinstance(entry, dict) for entry in audits):
        return "\n".join([*lines, f"audit = {_value(audits)}"])
    for entry in audits:
        lines += ["[[audit]]", *(f"{_key(key)} = {_value(value)}" for key, value in entry.items())]
    return "\n".join(lines) + "\n"


def _key(key: Any) -> str:
    return json.dumps(str(key))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
