"""What the words of an audit's parts mean: which parameters each part takes, and which words name code.

Nothing is imported, called or started here. The builder uses this module too, and imports (audit.suites.loading) only
what it finds: so ``code_of``, which `plan` calls first, lists everything that building and running would execute.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from audit.suites.claim_names import meant_claim
from audit.suites.suite import CODE_KEY, PARTS, AuditSpec, SuiteError, refuse_unknown
from dpsgd_audit.spelling import closest, did_you_mean
from guarantees.checks import Rule, rules_of, shown

Catalogue = Mapping[str, Mapping[str, Callable[..., Any]]]
"""Constructors by part and kind."""
PROGRAMS = {"command_step": "command", "opacus_step": "version"}
"""Kinds that start a program, and the word that names it: a command line, or a release that pip installs."""
RESERVED = ("kind", "mechanism", "neighbours")
"""Words of constructors that are never parameters of an audit."""
BUILDERS_WORDS = {"mechanism": ("simulator",), "distinguisher": ("model", "neighbours")}
"""Words of a table that are not passed to a constructor."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stated:
    """One part: its own words, the audit's parameters that it takes, and which of all these name code."""

    own: Mapping[str, Any]
    shared: Mapping[str, Any]
    """Empty for a user's function, whose signature is known only after it is imported."""
    names: Mapping[str, inspect.Parameter]
    """All parameters of its constructor; empty for a user's function as well."""
    imports: Mapping[str, str]
    """Words whose value is the entry point of something to import."""
    starts: str | None
    """The program that it starts, if any."""

    @property
    def code(self) -> tuple[str, ...]:
        """Everything that building or running it would execute."""
        return (*self.imports.values(), *([] if self.starts is None else [self.starts]))


def stated(part: str, table: Mapping[str, Any], parameters: Mapping[str, Any], known: Catalogue) -> Stated:
    """Read the table of a part. If a constructor takes a function, any text there is an entry point, however spelt."""
    if "kind" not in table:
        own = {key: value for key, value in table.items() if key != CODE_KEY}
        return Stated(own=own, shared={}, names={}, imports={CODE_KEY: str(table[CODE_KEY])}, starts=None)
    kind = table["kind"]
    own = {key: value for key, value in table.items() if key != "kind"}
    signature = signature_of(known[part].get(kind) if isinstance(kind, str) else None)
    shared = {
        key: value for key, value in parameters.items() if key in signature and key not in own and key not in RESERVED
    }
    words = {**shared, **own}
    imports = {
        key: value
        for key, value in words.items()
        if isinstance(value, str) and key in signature and "Callable" in str(signature[key].annotation)
    }
    program = words.get(PROGRAMS.get(kind, "")) if isinstance(kind, str) else None
    starts = None if program is None else _program(program)
    return Stated(own=own, shared=shared, names=signature, imports=imports, starts=starts)


def known_words(
    part: str, table: Mapping[str, Any], spec: AuditSpec, known: Catalogue, given: Collection[str]
) -> Stated:
    """Read the table of a built-in part; refuses unknown words, and missing ones that ``given`` does not supply."""
    kind, kinds = table["kind"], known[part]
    if kind not in kinds:
        own = meant_claim(kind) if part == "claim" else did_you_mean(kind, kinds)
        own = f'. For your own code write {{ function = "{kind}" }}' if ":" in str(kind) else own
        if CODE_KEY in table:
            own += f'. If JAX traces your function, write {{ {CODE_KEY} = "{table[CODE_KEY]}" }} without a kind'
        raise SuiteError(
            f"{spec.at(part)}: unknown {part} {kind!r} in audit {spec.name!r}{own}. Known: {', '.join(sorted(kinds))}."
        )
    words, what = stated(part, table, spec.parameters, known), called(part, spec, kind)
    takes = [key for key, own in words.names.items() if own.default is own.empty and "Callable" in str(own.annotation)]
    if CODE_KEY in words.own and CODE_KEY not in words.names and takes:
        raise SuiteError(f"{spec.at(CODE_KEY)}: {what} takes your code as {' and '.join(takes)}, not as {CODE_KEY!r}.")
    refuse_unknown(words.own, words.names, spec.at, what)
    for key, parameter in words.names.items():
        if parameter.default is inspect.Parameter.empty and key not in {*words.shared, *words.own, *given}:
            unused = [word for word in spec.parameters if word not in takeable(spec, known)]
            if meant := closest(key, unused, likeness=0.8):
                raise SuiteError(f"{spec.at(meant)}: {what} needs {key!r}; did you mean that by {meant!r}?")
            raise SuiteError(f"{spec.at(part)}: {what} needs {key!r}; add `{key} = ...`.")
    return words


def called(part: str, spec: AuditSpec, kind: str) -> str:
    """Name of a part in messages."""
    return f"{part} {kind!r} of audit {spec.name!r}"


def require_simulator(simulator: Any, spec: AuditSpec) -> None:
    """Refuse a wrong `simulator` of a mechanism."""
    if simulator not in ("full", "collapsed"):
        raise SuiteError(f"{spec.at('simulator')}: simulator must be 'full' or 'collapsed', got {simulator!r}.")


def refuse_wrong_words(spec: AuditSpec, known: Catalogue) -> None:
    """Refuse wrong words in the built-in parts of an audit that is not built, as `build` would."""
    for part, table in tables_of(spec):
        if "kind" in table:
            require_simulator(table.get("simulator", "full") if part == "mechanism" else "full", spec)
            own = {key: value for key, value in table.items() if key not in BUILDERS_WORDS.get(part, ())}
            given = ("mechanism", "neighbours") if part in ("distinguisher", "claim") else ()
            words = known_words(part, own, spec, known, given)
            _refuse_values(words, rules_of(known[part][table["kind"]]), called(part, spec, table["kind"]), spec)


def _refuse_values(words: Stated, rules: Mapping[str, Rule], what: str, spec: AuditSpec) -> None:
    """Refuse words and numbers that a constructor's types exclude; imports and tables are not checked."""
    for key, value in {**words.shared, **words.own}.items():
        rule = None if key in words.imports or not isinstance(value, str | int | float) else rules.get(key)
        if rule is not None and not rule.holds(value):
            raise SuiteError(f"{spec.at(key)}: {what}: {key} must be {rule.says}, got {shown(value)}.")


def left_to_code(spec: AuditSpec, known: Catalogue) -> tuple[str, ...]:
    """Parameters of an audit that only a user's function may take, which only its import would show."""
    found = taken(spec, known)
    return tuple(key for key in spec.own_parameters if key not in found) if has_own_functions(spec) else ()


def _program(words: Any) -> str:
    """Name of the program in a command line."""
    return str(words[0]) if isinstance(words, list | tuple) and words else str(words)


def tables_of(spec: AuditSpec) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every table of an audit that names a part, including those inside its distinguisher."""
    inside = spec.distinguisher or {}
    tables = [(part, getattr(spec, part)) for part in PARTS]
    for part, table in (*tables, ("mechanism", inside.get("model")), ("neighbours", inside.get("neighbours"))):
        given = {"kind": table} if isinstance(table, str) else table
        if isinstance(given, Mapping) and ("kind" in given or CODE_KEY in given):
            yield part, given


def code_of(spec: AuditSpec, known: Catalogue) -> tuple[str, ...]:
    """All code that building or running an audit would execute: entry points and programs."""
    found = [stated(part, table, spec.parameters, known) for part, table in tables_of(spec)]
    return tuple(dict.fromkeys(entry for part in found for entry in part.code))


def taken(spec: AuditSpec, known: Catalogue) -> set[str]:
    """Parameters of an audit that its parts take, except those that users' functions take."""
    found = [stated(part, table, spec.parameters, known) for part, table in tables_of(spec)]
    return {key for part in found for key in part.shared}


def takeable(spec: AuditSpec, known: Catalogue) -> set[str]:
    """Names of all parameters that the kinds of an audit's parts take."""
    names: set[str] = set()
    for part, table in tables_of(spec):
        kind = table.get("kind")
        names |= set(signature_of(known[part].get(kind) if isinstance(kind, str) else None))
    return names - set(RESERVED)


def has_own_functions(spec: AuditSpec) -> bool:
    """Whether a user's function, which may take any parameter, makes a part."""
    return any("kind" not in table for _, table in tables_of(spec))


def signature_of(function: Any) -> Mapping[str, inspect.Parameter]:
    """Parameters of a function; none if Python cannot tell."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
