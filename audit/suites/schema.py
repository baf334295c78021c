"""The JSON Schema of suite files, for editors that complete and check TOML."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

from audit.policies.policy import ALL_TARGETS
from audit.suites.suite import AUDIT_KEYS, CODE_KEY, PARTS, SUITE_KEYS
from audit.trials.seeds import SEEDS
from audit.verdict.verdict import VERDICTS
from guarantees import checks

TYPES = {"float": "number", "int": "integer", "str": "string", "bool": "boolean"}
DEFAULTS = "Used if an audit states nothing itself; the keys of a part only if the audit names the same part, or none."
GIVEN = ("mechanism", "neighbours", "kind")
"""Parameters that the suite's other parts supply."""

ENTRY = {"type": "string", "pattern": "^[^:]+:[^:]+$", "description": "package.module:name"}
"""Schema of an entry point into the user's code."""

NAMED = {
    "title": {"type": "string"},
    "name": {"type": "string", "description": "Results are stored under this name."},
    "risk": {
        "type": "number",
        "exclusiveMinimum": 0,
        "exclusiveMaximum": 1,
        "description": "Probability that any verdict of the suite falsely says 'violation'.",
    },
    "trials": {
        "type": "integer",
        "minimum": 2,
        "multipleOf": 2,
        "description": "Outputs drawn in all, half on each dataset.",
    },
    "delta": {"type": "number", "minimum": 0, "exclusiveMaximum": 1, "description": "Epsilon is stated at this delta."},
    "seed": {"type": "integer", "minimum": 0, "maximum": SEEDS - 1},
    "time_budget": {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*[smh]?\s*$"},
        ],
        "description": "Seconds, or 60s, 5m, 1h.",
    },
    "expect": {"enum": list(VERDICTS), "default": "no_violation_found"},
    "target": {"enum": list(ALL_TARGETS), "description": "Spend the whole risk on this number."},
    "diagnose": {
        "type": "boolean",
        "default": True,
        "description": "After a violation, say what looks wrong; otherwise replay PyTorch code.",
    },
    "environment": {"type": "string", "description": "Of a command_step: the name of one of [environments]."},
    "environments": {
        "type": "object",
        "description": "Created once by `run --allow-install`, in the user's cache folder.",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": False,
            "required": ["packages"],
            "properties": {
                "python": {"type": "string", "pattern": r"^3(\.\d{1,2}){0,2}$"},
                "packages": {"type": "array", "minItems": 1, "items": {"type": "string"}},
            },
        },
    },
    "parameters": {"type": "object", "description": "Given to every part that takes them; lists are grids."},
}
"""Schemas of the keys of suites and audits."""


def suite_schema(catalogue: Mapping[str, Mapping[str, Callable[..., Any]]]) -> dict[str, Any]:
    """The schema, from the keys of suites and the signatures of what they can name."""
    parts = {part: {"$ref": f"#/$defs/{part}"} for part in PARTS}
    audit = {"type": "object", "additionalProperties": False, "properties": _chosen(AUDIT_KEYS, {**NAMED, **parts})}
    inside = {
        "defaults": {"$ref": "#/$defs/audit", "description": DEFAULTS},
        "audit": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/audit"}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dpsgd-audit suite",
        "type": "object",
        "additionalProperties": False,
        "required": ["audit"],
        "properties": _chosen(SUITE_KEYS, {**NAMED, **inside}),
        "$defs": {"audit": audit, **{part: _part(part, catalogue[part]) for part in PARTS}},
    }


def _chosen(keys: tuple[str, ...], known: Mapping[str, Any]) -> dict[str, Any]:
    """Schemas of these keys; a KeyError is a key of suites that the schema lacks."""
    return {key: known[key] for key in keys}


def _part(part: str, group: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """Schema of a part: a name, a table with a kind or an entry point, or further keys for the part in [defaults]."""
    names = sorted(group)
    tables = [_table(name, group[name], part) for name in names]
    entry = {"type": "object", "required": [CODE_KEY], "properties": {CODE_KEY: ENTRY}}
    further_keys = {
        "type": "object",
        "description": "Keys beside those that this part has in [defaults].",
        "not": {"anyOf": [{"required": [key]} for key in ("kind", CODE_KEY)]},
        "propertyNames": {"enum": sorted({key for table in tables for key in table["properties"]} - {"kind"})},
    }
    return {"anyOf": [{"enum": names}, *tables, entry, further_keys]}


def _table(name: str, constructor: Callable[..., Any], part: str) -> dict[str, Any]:
    """Schema of the table of one kind."""
    properties: dict[str, Any] = {"kind": {"const": name}}
    for parameter in inspect.signature(constructor).parameters.values():
        if parameter.name not in GIVEN:
            properties[parameter.name] = _property(parameter)
    if part == "mechanism":
        properties["simulator"] = {"enum": ["full", "collapsed"]}
    if part == "distinguisher":
        properties["model"] = {"$ref": "#/$defs/mechanism"}
        properties["neighbours"] = {"$ref": "#/$defs/neighbours"}
    summary = (inspect.getdoc(constructor) or "").partition("\n")[0]
    return {
        "type": "object",
        "description": summary,
        "required": ["kind"],
        "additionalProperties": False,
        "properties": properties,
    }


def _property(parameter: inspect.Parameter) -> dict[str, Any]:
    """Schema of a parameter: its type if that is a plain one, and its default."""
    schema: dict[str, Any] = {}
    kind = parameter.annotation
    # our own annotations, such as Positive, are types with a range
    within = getattr(checks, kind, None) if isinstance(kind, str) else None
    kind = get_args(within)[0] if get_origin(within) is Annotated else kind
    plain = TYPES.get(kind if isinstance(kind, str) else getattr(kind, "__name__", ""))
    if "Callable" in str(kind):
        schema |= ENTRY if "Mapping" not in str(kind) else {"anyOf": [ENTRY, {"type": "object"}]}
    elif plain is not None:
        schema["type"] = plain
    if isinstance(parameter.default, bool | int | float | str):
        schema["default"] = parameter.default
    return schema
