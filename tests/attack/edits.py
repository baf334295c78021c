"""Edits of records against `verify`: ``python -m attack.edits [RECORDS.json] [--edits 1000]``, from ``tests``.

Without a file the records are those of every policy. ``--edits`` single values are drawn, first a key and then a
value under it; without it every value is edited, all values under a key at once; ``--each`` edits every key in so many
of the records that have it. Prints the table by key: edits that
reading refuses, that `verify` calls wrong, that it cannot compute, and that it names as primary only. The exit status
is 1 where a derived value was edited unseen.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from audit.record.read import SchemaError
from audit.record.record import AuditRecord
from audit.record.stored import from_json
from audit.verify import procedure as verification
from audit.verify.procedure import verify
from audit.verify.record_values import key_of, leaves, under

SEEN = ("refused", "wrong")
ONE_BY_ONE = 3
"""Values under a key that are edited alone where all of them together make no record that can be compared."""
EVERYTHING = "all derived values"
"""The heading under which `verify` says that a record contradicts itself."""


class Edited(NamedTuple):
    """One edited value and what became of it."""

    audit: str
    path: str
    primary: bool
    state: str
    """refused (when read), wrong, not computed or nothing."""


def changed(value: Any, rng: np.random.Generator) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(rng.choice([1, 2, 10])) if value == 0 or rng.random() < 0.5 else value - 1
    if isinstance(value, float):
        return float(rng.choice([value * 0.97, value * 1.01, 0.9 * value + 0.0123])) if value else 0.01
    if isinstance(value, str):
        words = {"violation": "no_violation_found", "no_violation_found": "violation", "above": "below", "inf": 9.0}
        return words.get(value, f"{value[:-1]}9" if rng.random() < 0.5 else f"{value} not")
    return {"x": 1} if value == {} else [1.0] if value == [] else 0.5


def put(document: Any, path: str, value: Any) -> None:
    """Set the value at a path."""
    *inner, last = path.replace("[", ".[").split(".")
    for step in inner:
        document = document[int(step[1:-1])] if step.startswith("[") else document[step]
    document[int(last[1:-1]) if last.startswith("[") else last] = value


def drawn(records: Sequence[AuditRecord], count: int, seed: int) -> Iterator[Edited]:
    """Edits of single values, drawn over all keys and then over the values under one."""
    rng = np.random.default_rng(seed)
    named = names_of_primary(records)
    for _ in range(count):
        own = records[int(rng.integers(len(records)))]
        by_key = _by_key(own)
        key = sorted(by_key)[int(rng.integers(len(by_key)))]
        path, value = by_key[key][int(rng.integers(len(by_key[key])))]
        yield from _edited(own, {path: changed(value, rng)}, named[own.name])


def every(records: Sequence[AuditRecord], seed: int = 0, among: int = 1, each: int | None = None) -> Iterator[Edited]:
    """Every value of every record edited, all under a key at once; of the keys one ``among`` so many.

    With ``each`` a key is edited in so many of the records that have it, spread over them: no key is left out.
    """
    rng = np.random.default_rng(seed)
    named = names_of_primary(records)
    for own, keys in zip(records, keys_edited(records, each), strict=True):
        for place, (key, values) in enumerate(_by_key(own).items()):
            if key in keys and (place + seed) % among == 0:
                yield from _together(own, {path: changed(value, rng) for path, value in values}, named[own.name])


def keys_edited(records: Sequence[AuditRecord], each: int | None) -> list[set[str]]:
    """The keys that are edited in each record."""
    found = [set(_by_key(record)) for record in records]
    if each is None:
        return found
    chosen: list[set[str]] = [set() for _ in records]
    for place, key in enumerate(sorted(set().union(*found))):
        holders = [index for index, keys in enumerate(found) if key in keys]
        number = min(each, len(holders))
        for turn in range(number):
            chosen[holders[(place + turn * len(holders) // number) % len(holders)]].add(key)
    return chosen


def names_of_primary(records: Sequence[AuditRecord]) -> dict[str, tuple[str, ...]]:
    """By audit: the keys that `verify` names as primary, where it finds nothing wrong before anything is edited."""
    before = verify(records)
    assert {check.state for check in before.checks} == {"right"}, before.checks
    return {record.name: tuple(p.key for p in before.primary if p.audit == record.name) for record in records}


def unseen(found: Iterable[Edited]) -> list[Edited]:
    """Derived values that were edited and not called wrong."""
    return [edit for edit in found if not edit.primary and edit.state not in SEEN]


def table(found: Iterable[Edited], *, whole: bool = False) -> str:
    """By key, or by its first word: edits, and what became of them."""
    rows: dict[tuple[str, bool], Counter[str]] = {}
    for edit in found:
        key = key_of(edit.path)
        rows.setdefault((key if whole else key.split(".")[0], edit.primary), Counter())[edit.state] += 1
    lines = [f"{'key':30s} {'':8s} edits refused wrong  3  named only"]
    for (key, primary), seen in sorted(rows.items()):
        kind = "primary" if primary else "derived"
        counts = [seen[state] for state in (*SEEN, "not computed", "nothing")]
        states = f"{counts[0]:7d} {counts[1]:5d} {counts[2]:2d} {counts[3]:6d}"
        lines.append(f"{key:30s} {kind:8s} {sum(counts):5d} {states}")
    return "\n".join(lines)


def _by_key(record: AuditRecord) -> dict[str, list[tuple[str, Any]]]:
    found: dict[str, list[tuple[str, Any]]] = {}
    for path, value in leaves(record.to_json()):
        found.setdefault(key_of(path), []).append((path, value))
    return found


def _together(own: AuditRecord, edits: Mapping[str, Any], named: tuple[str, ...]) -> Iterator[Edited]:
    """All at once, and some alone of those that this did not tell apart."""
    found = list(_edited(own, edits, named))
    open_ones = [edit for edit in found if not edit.primary and edit.state != "wrong"]
    alone = open_ones[:: max(1, len(open_ones) // ONE_BY_ONE)] if len(edits) > 1 else open_ones
    yield from (edit for edit in found if edit not in open_ones)
    for edit in alone:
        yield from _edited(own, {edit.path: edits[edit.path]}, named)


def _edited(own: AuditRecord, edits: Mapping[str, Any], named: tuple[str, ...]) -> Iterator[Edited]:
    """What becomes of each of these edits, made in one record."""
    document = json.loads(json.dumps(own.to_json()))
    for path, value in edits.items():
        put(document, path, value)
    try:
        edited = from_json(document)
    except SchemaError:
        yield from (Edited(own.name, path, _is_primary(own, path, named), "refused") for path in edits)
        return
    if edited == own:
        return
    # alone: that the rest of its suite is missing says nothing about the edit
    checks = [check for check in _all_of(edited) if check.what != "suite"]
    wrong = [check for check in checks if check.state == "wrong"]
    for path in edits:
        if len(edits) == 1:
            seen = bool(wrong)
        else:
            seen = any(f"{path}: " in check.says for check in wrong if check.what != EVERYTHING)
        missing = any(check.state == "not computed" for check in checks)
        state = "wrong" if seen else "not computed" if missing else "nothing"
        yield Edited(own.name, path, _is_primary(own, path, named), state)


def _all_of(record: AuditRecord) -> tuple[verification.Check, ...]:
    """What `verify` finds, with every difference told."""
    shown, verification.SHOWN = verification.SHOWN, 10**6
    try:
        return verify((record,)).checks
    finally:
        verification.SHOWN = shown


def _is_primary(own: AuditRecord, path: str, named: tuple[str, ...]) -> bool:
    # the last diagnosis is read off the points
    last = f"diagnoses[{len(own.diagnoses) - 1}]"
    return under(key_of(path), named) is not None and not path.startswith(last)


def main() -> int:
    """Edit, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path, nargs="?")
    parser.add_argument("--edits", type=int, default=None)
    parser.add_argument("--each", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.records is None:
        from made_records import suite_of_policies

        records = suite_of_policies()
    else:
        from audit.record.stored import load_records

        records = load_records(given.records)
    found = list(every(records, each=given.each) if given.edits is None else drawn(records, given.edits, given.seed))
    print(table(found, whole=True))
    missed = unseen(found)
    print(f"{len(found)} values edited, {len(missed)} derived ones unseen", *missed, sep="\n")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
