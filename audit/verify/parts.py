"""Build the parts of an audit again, as its record or its suite names them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from audit.record.record import AuditRecord, Part
from audit.suites.build import build, catalogue
from audit.suites.parts import PROGRAMS
from audit.suites.suite import Suite
from audit.verify.record_values import as_tuple
from distinguishers.contract import Distinguisher, Learner
from dpsgd_audit.later import jax, jnp
from mechanisms.catalogue import COLLAPSED
from mechanisms.contract import mechanism as as_mechanism
from mechanisms.pairs.neighbours import Neighbours

if TYPE_CHECKING:
    from audit.trials.both_sides import Auditable


class Parts(NamedTuple):
    """Mechanism, pair and distinguisher of an audit."""

    mechanism: Auditable
    neighbours: Neighbours
    distinguisher: Distinguisher | Learner


def stated_parts(record: AuditRecord, suite: Suite) -> Parts:
    """The parts as the suite states them."""
    spec = next((spec for spec in suite.audits if spec.name == record.name), None)
    if spec is None:
        raise ValueError(f"the suite has no audit {record.name!r}")
    made = build(spec)
    score = made.distinguisher
    if score is None:
        from distinguishers.battery import default_battery

        score = default_battery(made.neighbours, mechanism=made.mechanism)
    return Parts(made.mechanism, made.neighbours, score)


def recorded_parts(record: AuditRecord) -> Parts:
    """The parts as the record names them; a ValueError, TypeError or ImportError says why they cannot be built."""
    known = catalogue()
    step = _mechanism(record.mechanism, known["mechanism"])
    pair = _made(record.neighbours, known["neighbours"])
    return Parts(step, pair, _distinguisher(record, known, step, pair))


def _mechanism(part: Part, known: Mapping[str, Callable[..., Any]]) -> Any:
    """The audited mechanism, or one that a distinguisher assumes; a file of records never starts a program."""
    program = PROGRAMS.get(part.name)
    if program is not None and part.parameters.get(program) is not None:
        raise ValueError(f"{part.name} runs a program; give the suite that names it with --suite")
    if part.name not in COLLAPSED:
        return as_mechanism(_made(part, known))
    full = _made(Part(name=COLLAPSED[part.name], parameters=part.parameters), known)
    return as_mechanism(full).collapsed()


def _distinguisher(
    record: AuditRecord, known: Mapping[str, Mapping[str, Callable[..., Any]]], step: Any, neighbours: Neighbours
) -> Any:
    """The distinguisher, with the audited mechanism and pair or those that it assumes instead."""
    part = record.distinguisher
    name = _constructor(part)
    signature = inspect.signature(known["distinguisher"].get(name, lambda: None)).parameters
    given: dict[str, Any] = {"mechanism": step} if "mechanism" in signature else {}
    if "neighbours" in signature and "neighbours" in part.parameters:
        given["neighbours"] = neighbours
    makers = {
        "mechanism": (_mechanism, record.mechanism),
        "neighbours": (_made, record.neighbours),
    }
    for key in given:
        make, audited = makers[key]
        assumed = _part(part.parameters.get(key))
        if assumed is None or (assumed.name, assumed.parameters) == (audited.name, dict(audited.parameters)):
            continue
        # a battery's pair may be derived from the audited one; the result is compared with the record anyway
        if assumed.name in known[key] or assumed.name in COLLAPSED:
            given[key] = make(assumed, known[key])
    parameters = {key: value for key, value in part.parameters.items() if key not in makers}
    return _made(Part(name=name, parameters=parameters), known["distinguisher"], given)


def _constructor(part: Part) -> str:
    """Name of the constructor of a distinguisher, or of the learner that made it."""
    if part.name == "battery" and "learnt_from" in part.parameters:
        return "default_battery"
    return "fit" if part.name == "learned" else part.name


def _part(table: Any) -> Part | None:
    """A part from a table; None if it is no part."""
    if not isinstance(table, Mapping) or "kind" not in table:
        return None
    return Part(name=table["kind"], parameters={key: value for key, value in table.items() if key != "kind"})


def _made(part: Part, known: Mapping[str, Callable[..., Any]], given: Mapping[str, Any] | None = None) -> Any:
    """Call the constructor of a part."""
    if part.name not in known:
        raise ValueError(f"{part.name!r} is not a constructor that suites can name; give its suite with --suite")
    constructor = known[part.name]
    signature = inspect.signature(constructor).parameters
    own = {key: as_tuple(value) for key, value in part.parameters.items() if key in signature}
    return constructor(**own, **(given or {}))


def key_of(record: AuditRecord) -> jax.Array:
    """Key of a record's trials."""
    implementation, _, words = record.key.partition(":")
    numbers = jnp.asarray([int(word) for word in words.split(",")], jnp.uint32)
    return jax.random.wrap_key_data(numbers, impl=implementation)
