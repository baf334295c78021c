"""From the tables of a suite to mechanisms, neighbours, distinguishers, claims and policies."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import distinguishers
import guarantees
import mechanisms
from audit.policies.policy import Policy
from audit.policies.registry import POLICIES
from audit.suites.claim_text import CLAIMS
from audit.suites.file import CODE_KEYS, PARTS, AuditSpec, Suite, SuiteError, is_part, nearest, refuse_unknown
from audit.trials.both_sides import Auditable
from audit.trials.source import sentence
from distinguishers.contract import Distinguisher, Learner
from guarantees.claim import Claim
from mechanisms.pairs.neighbours import Neighbours

LIBRARY_CLAIMS: dict[str, Callable[..., Claim]] = {
    "opacus_claim": mechanisms.opacus_claim,
    "optax_claim": mechanisms.optax_claim,
    "jax_privacy_claim": mechanisms.jax_privacy_claim,
}
"""Claims read from a library's own accountant; they see the mechanism and the neighbours."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """An audit ready to run."""

    spec: AuditSpec
    mechanism: Auditable
    neighbours: Neighbours
    distinguisher: Distinguisher | Learner | None
    claim: Claim
    policy: Policy | None


def catalogue() -> dict[str, dict[str, Callable[..., Any]]]:
    """Every constructor that a suite can name, by the part that it makes."""
    return {
        "mechanism": dict(mechanisms.CATALOGUE),
        "neighbours": dict(mechanisms.NEIGHBOURS),
        "distinguisher": dict(distinguishers.CATALOGUE),
        "claim": {name: getattr(guarantees, name) for name in CLAIMS} | dict(LIBRARY_CLAIMS),
        "policy": dict(POLICIES),
    }


def build(spec: AuditSpec) -> Built:
    """Construct every part of one audit; a wrong word gets a message with its place."""
    try:
        return _built(spec)
    except SuiteError:
        raise
    except Exception as error:
        raise SuiteError(f"{spec.where}: audit {spec.name!r} cannot be built: {sentence(error)}") from error


def build_suite(
    suite: Suite, audits: Sequence[AuditSpec] | None = None, *, each: Callable[[Built], None] = lambda _: None
) -> list[Built]:
    """All audits of a suite, or those of them that are wanted; a parameter of [defaults] that none takes is refused.

    ``each`` is given every audit as soon as it is built.
    """
    _refuse_unused_defaults(suite)
    built = []
    for spec in suite.audits if audits is None else audits:
        built.append(build(spec))
        each(built[-1])
    return built


def _built(spec: AuditSpec) -> Built:
    known = catalogue()
    step = _mechanism(spec.mechanism, known["mechanism"], spec)
    _refuse_missing(step, spec)
    pair = _part("neighbours", spec.neighbours, known["neighbours"], spec)
    built = Built(
        spec=spec,
        mechanism=step,
        neighbours=pair,
        distinguisher=None if spec.distinguisher is None else _distinguisher(spec, known, step, pair),
        claim=_part("claim", spec.claim, known["claim"], spec, {"mechanism": step, "neighbours": pair}),
        policy=None if spec.policy is None else _part("policy", spec.policy, known["policy"], spec),
    )
    _refuse_unused(spec, known)
    return built


def _distinguisher(
    spec: AuditSpec, known: Mapping[str, Mapping[str, Callable[..., Any]]], step: Any, pair: Neighbours
) -> Any:
    """A distinguisher; its `model` and its `neighbours` are what it supposes, and may differ from what is audited."""
    table = dict(spec.distinguisher or {})
    given = {"mechanism": step, "neighbours": pair}
    if "model" in table:
        given["mechanism"] = _mechanism(_table(table.pop("model"), "model", spec), known["mechanism"], spec)
    if "neighbours" in table:
        supposed = _table(table.pop("neighbours"), "neighbours", spec)
        given["neighbours"] = _part("neighbours", supposed, known["neighbours"], spec)
    return distinguishers.distinguisher(_part("distinguisher", table, known["distinguisher"], spec, given))


def _table(table: Any, key: str, spec: AuditSpec) -> Mapping[str, Any]:
    """A name alone stands for a table of that kind."""
    if isinstance(table, str):
        return {"kind": table}
    if is_part(table):
        return table
    raise SuiteError(
        f'{spec.where}: {key} of a distinguisher must be a name or a table with `kind = "..."`, got {table!r}.'
    )


def _refuse_missing(step: Any, spec: AuditSpec) -> None:
    """A library that only the trials would miss is missed now, before another audit has cost time."""
    missing = [name for name in step.libraries if importlib.util.find_spec(name) is None]
    if missing:
        raise SuiteError(
            f"{spec.where}: {step.name} of audit {spec.name!r} needs {' and '.join(missing)}, which is not installed; "
            "dpsgd-audit has the extras opacus and jax-privacy: pip install 'dpsgd-audit[...]'."
        )


def _mechanism(table: Mapping[str, Any], known: Mapping[str, Callable[..., Any]], spec: AuditSpec) -> Any:
    """A mechanism by name, or a user's own by entry point; `simulator = "collapsed"` takes its fast form."""
    table = dict(table)
    simulator = table.pop("simulator", "full")
    if simulator not in ("full", "collapsed"):
        raise SuiteError(f"{spec.where}: simulator must be 'full' or 'collapsed', got {simulator!r}.")
    step = mechanisms.mechanism(_part("mechanism", table, known, spec))
    if simulator == "full":
        return step
    collapsed = step.collapsed()
    if collapsed is None:
        raise SuiteError(f"{spec.where}: {step.name} has no collapsed simulator; drop `simulator`.")
    return collapsed


def _part(
    part: str,
    table: Mapping[str, Any],
    known: Mapping[str, Callable[..., Any]],
    spec: AuditSpec,
    given: Mapping[str, Any] | None = None,
) -> Any:
    if "kind" not in table:
        return _own(part, table, spec)
    kind = table["kind"]
    if kind not in known:
        own = f'. Code of your own: write {{ function = "{kind}" }}' if ":" in str(kind) else nearest(kind, known)
        raise SuiteError(
            f"{spec.where}: unknown {part} {kind!r} in audit {spec.name!r}{own}. Known: {', '.join(sorted(known))}."
        )
    signature = inspect.signature(known[kind]).parameters
    arguments = {key: value for key, value in table.items() if key != "kind"}
    refuse_unknown(arguments, signature, lambda key: spec.where, f"{part} {kind!r} of audit {spec.name!r}")
    shared = {key: value for key, value in spec.parameters.items() if key in signature}
    supplied = {key: value for key, value in (given or {}).items() if key in signature}
    arguments = {**shared, **supplied, **arguments}
    arguments = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
    for key, value in arguments.items():
        if isinstance(value, str) and "Callable" in str(signature[key].annotation):
            arguments[key] = _entry_point(value, key, spec)
    for key, parameter in signature.items():
        if parameter.default is inspect.Parameter.empty and key not in arguments:
            raise SuiteError(f"{spec.where}: {part} {kind!r} of audit {spec.name!r} needs {key!r}; add `{key} = ...`.")
    try:
        return known[kind](**arguments)
    except Exception as error:
        raise SuiteError(f"{spec.where}: {part} {kind!r} of audit {spec.name!r}: {sentence(error)}") from error


def _own(part: str, table: Mapping[str, Any], spec: AuditSpec) -> Any:
    """`function = "package.module:name"` without a kind: the part itself, or what makes it with the other words."""
    word = next(key for key in CODE_KEYS if key in table)
    found = _entry_point(table[word], word, spec)
    arguments = {key: value for key, value in table.items() if key != word}
    made = {"neighbours": Neighbours, "claim": Claim, "policy": Policy}.get(part)
    if arguments or isinstance(found, type) or (made is not None and not isinstance(found, made)):
        if not callable(found):
            raise SuiteError(f"{spec.where}: {word} = {table[word]!r} of audit {spec.name!r} is no {part}: {found!r}.")
        try:
            found = found(**arguments)
        except (Exception, SystemExit) as error:
            what = f"{word} = {table[word]!r} of audit {spec.name!r}"
            raise SuiteError(f"{spec.where}: {what} failed with {arguments}: {sentence(error)}") from error
    if made is not None and not isinstance(found, made):
        raise SuiteError(f"{spec.where}: {word} = {table[word]!r} of audit {spec.name!r} gave no {part}: {found!r}.")
    return found


def _entry_point(path: Any, word: str, spec: AuditSpec) -> Any:
    """`package.module:name`, imported only when the audit is built."""
    module, _, name = str(path).partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SuiteError(
            f"{spec.where}: cannot import {word} = {path!r} ({sentence(error)}); write it as 'package.module:name', "
            "importable from where dpsgd-audit runs."
        ) from error
    except (Exception, SystemExit) as error:
        raise SuiteError(
            f"{spec.where}: importing {word} = {path!r} of audit {spec.name!r} failed ({sentence(error)}); mend the "
            "module, whose import must only define things."
        ) from error
    return found


def _refuse_unused(spec: AuditSpec, known: Mapping[str, Mapping[str, Callable[..., Any]]]) -> None:
    """A parameter that the audit states and no part of it takes is a misspelt one."""
    taken = _taken(spec, known)
    for key in spec.own_parameters:
        if key not in taken:
            raise SuiteError(
                f"{spec.where}: no part of audit {spec.name!r} takes the parameter {key!r}{nearest(key, taken)}. "
                f"Taken: {', '.join(sorted(taken))}."
            )


def _refuse_unused_defaults(suite: Suite) -> None:
    """One that only some audits' parts take is fine."""
    known = catalogue()
    taken = set().union(*(_taken(spec, known) for spec in suite.audits)) if suite.defaults else set()
    for key, where in suite.defaults.items():
        if key not in taken:
            raise SuiteError(
                f"{where}: no part of any audit takes the parameter {key!r} of [defaults]{nearest(key, taken)}. "
                f"Taken: {', '.join(sorted(taken)) or 'none, code of your own is given none'}."
            )


def _taken(spec: AuditSpec, known: Mapping[str, Mapping[str, Callable[..., Any]]]) -> set[str]:
    """Parameters of everything in an audit that is named by its kind."""
    taken: set[str] = set()
    inside = spec.distinguisher or {}
    tables = [(part, getattr(spec, part)) for part in PARTS]
    tables += [("mechanism", inside.get("model")), ("neighbours", inside.get("neighbours"))]
    for part, table in tables:
        kind = table if isinstance(table, str) else (table or {}).get("kind")
        if isinstance(kind, str) and kind in known[part]:
            taken |= set(inspect.signature(known[part][kind]).parameters)
    return taken
