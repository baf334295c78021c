"""What was audited, in words: the command, the libraries with their versions, and what a record stands for."""

from __future__ import annotations

import shlex

from audit.record.record import AuditRecord

LIBRARIES = ("torch", "opacus", "jax_privacy")
"""Libraries whose versions mechanisms record by themselves."""
NOT_REPEATABLE = "not repeatable: the same seed gives other counts"


def command(record: AuditRecord) -> str:
    """The audited program as a shell would take it; nothing where the audited code is no program."""
    words = record.mechanism.parameters.get("command")
    return shlex.join(map(str, words)) if isinstance(words, list | tuple) else ""


def libraries(record: AuditRecord) -> str:
    """What the audited code ran with, where the record says: an environment's packages, or versions that were seen."""
    known = record.mechanism.parameters
    packages = known.get("packages")
    found = [str(package) for package in packages] if isinstance(packages, list | tuple) else []
    if found and known.get("python"):
        found.append(f"Python {known['python']}")
    found += [f"{library} {known[library]}" for library in LIBRARIES if known.get(library)]
    if known.get("version"):
        found.append(f"{record.mechanism.name.removesuffix('_step')} {known['version']}")
    return ", ".join(found)


def audited(record: AuditRecord) -> str:
    """The mechanism's name, its command and its libraries."""
    ran, beside = command(record), libraries(record)
    more = "; ".join(filter(None, (f"the command {ran}" if ran else "", f"with {beside}" if beside else "")))
    return f"{record.mechanism.name} ({more})" if more else record.mechanism.name


def unit_of_privacy(record: AuditRecord) -> str:
    """What the two datasets differ in: one record or several, or what the pair says that a record stands for."""
    parameters = record.neighbours.parameters
    unit, group = parameters.get("unit", "record"), parameters.get("group", 1)
    return f"one {unit}" if group == 1 else f"{group} {unit}s together"
