"""Read and check suites: TOML files that name audits. Nothing is run and JAX is not imported."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from audit.record.files import FileError, read_text
from audit.suites.suite import (
    AUDIT_KEYS,
    CODE_KEY,
    ENVIRONMENT_KEYS,
    MOST_AUDITS,
    MOST_TRIALS,
    PARTS,
    SUITE_KEYS,
    TARGETS,
    AuditSpec,
    Suite,
    SuiteError,
    refuse_unknown,
)
from audit.trials.seeds import require_seed
from audit.verdict.verdict import VERDICTS
from dpsgd_audit.spelling import did_you_mean


@dataclasses.dataclass(frozen=True)
class _Text:
    """The file's lines, to find the one that is wrong."""

    path: str
    lines: list[str]

    @functools.cached_property
    def starts(self) -> list[int]:
        """Indices of the lines at which an [[audit]] begins."""
        return [i for i, line in enumerate(self.lines) if re.match(r"\s*\[\[\s*audit\s*\]\]", line)]

    def where(self, key: str, audit: int | None = None) -> str:
        """'file:line' of a key, searched inside the given [[audit]] if there is one."""
        starts = self.starts
        low, high = 0, starts[0] if starts else len(self.lines)
        if audit is not None and audit < len(starts):
            low, high = starts[audit], starts[audit + 1] if audit + 1 < len(starts) else len(self.lines)
        pattern = re.compile(rf"(^|[\s{{,\[.])\"?{re.escape(key)}\"?\s*[=.\]]")
        for number in range(low, high):
            if pattern.search(self.lines[number].split("#")[0]):
                return f"{self.path}:{number + 1}"
        return f"{self.path}:{low + 1}"


def read_suite(path: str | os.PathLike[str]) -> Suite:
    """Read and check a suite file."""
    try:
        text = read_text(path)
    except FileError as error:
        raise SuiteError(str(error)) from None
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path}: not a text file in UTF-8 ({error.reason} at byte {error.start}).") from None
    return parse_suite(text, str(path))


def parse_suite(text: str, path: str) -> Suite:
    """Check a suite's text; ``path`` is named in messages."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        other = "; records are read by `dpsgd-audit report`" if text.startswith("{") else ""
        raise SuiteError(f"{path}: not valid TOML: {error}{other}.") from None
    lines = _Text(path, text.splitlines())
    refuse_unknown(data, SUITE_KEYS, lambda key: lines.where(key), "the suite")
    audits = data.get("audit", [])
    if isinstance(audits, dict):
        raise SuiteError(f"{lines.where('audit')}: an audit has double brackets: write [[audit]] in place of [audit].")
    if not isinstance(audits, list) or not audits:
        raise SuiteError(f"{path}: a suite needs at least one [[audit]].")
    risk = _number(data, "risk", 0.05, lines, low=0, high=1)
    _check_environments(data.get("environments", {}), lines)
    specs: list[AuditSpec] = []
    for index, entry in enumerate(audits):
        specs += _specs(entry, index, data, lines, room=MOST_AUDITS - len(specs))
    seen: dict[str, str] = {}
    for spec in specs:
        if spec.name in seen:
            raise SuiteError(
                f"{spec.at('name')}: two audits are called {spec.name!r}, the other one at {seen[spec.name]}; results "
                "are stored by name, so give each its own name."
            )
        seen[spec.name] = spec.at("name")
    title = data.get("title", f"Privacy audit of {Path(path).name}")
    if not isinstance(title, str):
        raise SuiteError(f"{lines.where('title')}: title must be a string, got {title!r}.")
    return Suite(
        title=title,
        risk=risk,
        seed=_seed(data, lines),
        time_budget=seconds(data["time_budget"], lines.where("time_budget")) if "time_budget" in data else None,
        audits=tuple(specs),
        defaults={key: lines.where(key) for key in _default_parameters(data, lines)},
    )


def _specs(entry: Any, index: int, data: Mapping[str, Any], lines: _Text, *, room: int) -> Iterable[AuditSpec]:
    """The audits that one [[audit]] stands for: one per point of its parameter grid."""

    defaults = data.get("defaults", {})

    def stated_in(key: str) -> int | None:
        # what the audit leaves out stands above it, in [defaults] or in the suite
        return None if key not in entry and (key in defaults or key in data) and key != "audit" else index

    def where(key: str) -> str:
        return lines.where(key, stated_in(key))

    refuse_unknown(defaults, AUDIT_KEYS, lines.where, "[defaults]")
    refuse_unknown(entry, AUDIT_KEYS, lambda key: lines.where(key, index), f"audit {index + 1}")
    merged = _merged(entry, defaults, data)
    _require_parts(merged, index, where)
    parameters = merged.get("parameters", {})
    if not isinstance(parameters, dict):
        raise SuiteError(f"{where('parameters')}: parameters must be a table, got {parameters!r}.")
    _refuse_grid(parameters, where, index, room)
    target = merged.get("target")
    expect = merged.get("expect", "no_violation_found")
    for key, value, allowed in (("target", target, TARGETS), ("expect", expect, VERDICTS)):
        if value not in allowed and (key, value) != ("target", None):
            says = f"{key} must be one of {allowed}, got {value!r}{did_you_mean(value, allowed)}."
            raise SuiteError(f"{where(key)}: {says}")
    trials = _whole(merged, "trials", 10_000, lines, stated_in("trials"))
    if trials < 2 or trials % 2:
        raise SuiteError(f"{where('trials')}: trials must be even and >= 2 (half on each dataset), got {trials}.")
    if trials > MOST_TRIALS:
        raise SuiteError(f"{where('trials')}: trials must be at most 2^62, got {trials}.")
    diagnose = merged.get("diagnose", True)
    if not isinstance(diagnose, bool):
        raise SuiteError(f"{where('diagnose')}: diagnose must be true or false, got {diagnose!r}.")
    budget = seconds(merged["time_budget"], where("time_budget")) if "time_budget" in merged else None
    delta = _number(merged, "delta", 1e-5, lines, stated_in("delta"), low=-1e-300, high=1)
    mechanism = _in_environment(merged, entry, data.get("environments", {}), where)
    place, own = where("audit"), tuple(entry.get("parameters", {}))
    places = {word: lines.where(word) for word in _words(defaults)} | {word: where(word) for word in _words(entry)}
    for suffix, chosen in _grid(parameters):
        yield AuditSpec(
            name=f"{merged['name']}{suffix}",
            expect=expect,
            trials=trials,
            delta=delta,
            target=target,
            time_budget=budget,
            parameters=chosen,
            mechanism=mechanism,
            neighbours=merged["neighbours"],
            claim=merged["claim"],
            distinguisher=merged.get("distinguisher"),
            policy=merged.get("policy"),
            where=place,
            diagnose=diagnose,
            own_parameters=own,
            places=places,
        )


def _merged(entry: Mapping[str, Any], defaults: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """An audit with what stands above it: in [defaults], and in the suite."""
    merged = {**{key: data[key] for key in ("trials", "delta") if key in data}, **defaults, **entry}
    if isinstance(defaults.get("parameters"), dict) and isinstance(entry.get("parameters"), dict):
        merged["parameters"] = {**defaults["parameters"], **entry["parameters"]}
    for part in PARTS:
        if part in merged:
            merged[part] = _with_default(entry.get(part), defaults.get(part))
    return merged


def _require_parts(merged: Mapping[str, Any], index: int, where: Callable[[str], str]) -> None:
    """That an audit has a name and everything that it needs, each spelled as a part is."""
    for part in ("name", "mechanism", "neighbours", "claim"):
        if part not in merged:
            raise SuiteError(f"{where('audit')}: audit {index + 1} has no {part}; add `{part} = ...`.")
    if not isinstance(merged["name"], str) or not merged["name"].strip():
        raise SuiteError(f"{where('name')}: name must be a non-empty string, got {merged['name']!r}.")
    for part in PARTS:
        if part in merged and not is_part(merged[part]):
            raise SuiteError(
                f'{where(part)}: {part} must be a name or a table with `kind = "..."` or, for code of your own, '
                f'`{CODE_KEY} = "module:name"`; got {merged[part]!r}.'
            )


def _words(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield every key of an audit, including those in tables of its parts."""
    for key, value in table.items():
        yield key
        if isinstance(value, Mapping):
            yield from _words(value)


def _check_environments(tables: Any, lines: _Text) -> None:
    """Check that [environments.NAME] has packages, at most a Python beside them, and nothing else."""
    if not isinstance(tables, dict):
        raise SuiteError(f"{lines.where('environments')}: environments are tables [environments.NAME], got {tables!r}.")
    for name, table in tables.items():
        refuse_unknown(table, ENVIRONMENT_KEYS, lines.where, f"[environments.{name}]")
        packages, python = table.get("packages"), table.get("python", "3")
        good = isinstance(packages, list) and packages and all(isinstance(each, str) for each in packages)
        if not good:
            raise SuiteError(
                f"{lines.where(name)}: [environments.{name}] needs packages, a list such as "
                f'["name==1.0"], got {packages!r}.'
            )
        if not isinstance(python, str) or not re.fullmatch(r"3(\.\d{1,2}){0,2}", python):
            raise SuiteError(
                f'{lines.where(name)}: python of [environments.{name}] is written like "3.11", got {python!r}.'
            )


def _in_environment(
    merged: Mapping[str, Any], entry: Mapping[str, Any], known: Mapping[str, Any], where: Callable[[str], str]
) -> Mapping[str, Any]:
    """The table of the mechanism with the packages of the environment that the audit names, if any."""
    table, name = merged["mechanism"], merged.get("environment")
    command = table.get("kind") == "command_step"
    if name is None or not (command or "environment" in entry):
        return table
    if not command:
        raise SuiteError(f"{where('environment')}: only a command_step runs in an environment; remove `environment`.")
    if name not in known:
        raise SuiteError(
            f"{where('environment')}: there is no [environments.{name}]{did_you_mean(name, known)}. "
            f"Known: {', '.join(known) or 'none'}."
        )
    return {**table, **known[name]}


def _with_default(own: Any, default: Any) -> Any:
    """A part of an audit with the keys of [defaults] that it leaves out, unless the two name different parts.

    A name alone stands for a table of that kind.
    """
    own, default = ({"kind": table} if isinstance(table, str) else table for table in (own, default))
    if own is None or default is None:
        return default if own is None else own
    if not (isinstance(own, dict) and isinstance(default, dict)):
        return own
    named = _named(own)
    return {**default, **own} if not named or named == _named(default) or not _named(default) else own


def _named(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """What identifies a part: its kind or, without one, its entry point."""
    word = "kind" if "kind" in table else CODE_KEY
    return {word: table[word]} if word in table else {}


def _default_parameters(data: Mapping[str, Any], lines: _Text) -> Mapping[str, Any]:
    """The parameters of [defaults]; they must be a table even if every audit has its own."""
    parameters = data.get("defaults", {}).get("parameters", {})
    if not isinstance(parameters, dict):
        raise SuiteError(f"{lines.where('parameters')}: parameters of [defaults] must be a table, got {parameters!r}.")
    return parameters


def is_part(table: Any) -> bool:
    """Whether a table names a part, by its kind or by an entry point."""
    return isinstance(table, dict) and any(isinstance(table.get(key), str) for key in ("kind", CODE_KEY))


def _refuse_grid(parameters: Mapping[str, Any], where: Callable[[str], str], index: int, room: int) -> None:
    """Refuse an empty list, which is no grid, and a grid that is so large that it must be a mistake."""
    points = 1
    for key, value in parameters.items():
        if isinstance(value, list):
            points *= len(value)
            if not value:
                raise SuiteError(f"{where(key)}: {key} of audit {index + 1} is an empty list; a grid needs a value.")
    if points > room:
        raise SuiteError(
            f"{where('parameters')}: audit {index + 1} expands to {points:,} audits; a suite has at most "
            f"{MOST_AUDITS:,} in total."
        )


def _grid(parameters: Mapping[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield every combination of the listed values, and a suffix for its name."""
    lists = {key: value for key, value in parameters.items() if isinstance(value, list)}
    for values in itertools.product(*lists.values()):
        chosen = dict(zip(lists, values, strict=True))
        suffix = "".join(f" {key}={value}" for key, value in chosen.items())
        yield suffix, {**parameters, **chosen}


def seconds(value: Any, where: str) -> float:
    """Seconds in a duration: a number, or '90s', '2m', '1h'."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(s|m|h|)\s*", str(value))
    if not match or float(match[1]) <= 0:
        raise SuiteError(f"{where}: a time budget is written like 60s, 5m or 1h, got {value!r}.")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _number(
    table: Mapping[str, Any],
    key: str,
    default: float,
    lines: _Text,
    index: int | None = None,
    *,
    low: float = -math.inf,
    high: float = math.inf,
) -> float:
    """A number of a table between ``low`` and ``high``."""
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low < value < high:
        raise SuiteError(
            f"{lines.where(key, index)}: {key} must be a number between {max(low, 0):g} and {high:g}, got {value!r}."
        )
    return float(value)


def _seed(data: Mapping[str, Any], lines: _Text) -> int:
    """The seed of a suite."""
    seed = _whole(data, "seed", 0, lines)
    try:
        require_seed(seed)
    except ValueError as error:
        raise SuiteError(f"{lines.where('seed')}: {error}") from None
    return seed


def _whole(table: Mapping[str, Any], key: str, default: int, lines: _Text, index: int | None = None) -> int:
    """A whole number of a table."""
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise SuiteError(f"{lines.where(key, index)}: {key} must be a whole number, got {value!r}.")
    return value
