"""What was audited, in words: the command, the libraries with their versions, and what a record stands for."""

from __future__ import annotations

import collections
import shlex
from collections.abc import Iterable

from audit.record.record import AuditRecord
from dpsgd_audit.spelling import counted

LIBRARIES = ("torch", "opacus", "jax_privacy", "optax")
"""Libraries of audited code whose versions a record keeps, in its environment or with the mechanism."""
OF_OPACUS = ("opacus_claim", "claim_from_history")
"""Claims that Opacus's own accountant makes."""
OF_TRAINING = ("noise_multiplier", "clip", "history", "rate", "sample_rate", "batch_size", "accountant")
"""Parameters that only DP-SGD has."""
NOT_REPEATABLE = "not repeatable: the same seed gives other counts; bounds hold if trials are independent of each other"


def command(record: AuditRecord) -> str:
    """The audited program as a shell command; empty if the audited code is no program."""
    words = record.mechanism.parameters.get("command")
    return shlex.join(map(str, words)) if isinstance(words, list | tuple) else ""


def libraries(record: AuditRecord) -> str:
    """Libraries with which the audited code ran, if the record says: an environment's packages, or versions seen."""
    known = record.mechanism.parameters
    packages = known.get("packages")
    found = [str(package) for package in packages] if isinstance(packages, list | tuple) else []
    if found and known.get("python"):
        found.append(f"Python {known['python']}")
    seen = {**record.environment, **known}
    # the version of an Opacus that is merely installed is recorded, too; a divisor is what its optimizer has
    used = "divisor" in seen or "opacus" in record.mechanism.name or record.claim.name in OF_OPACUS
    unused = () if used else ("opacus",)
    found += [f"{library} {seen[library]}" for library in LIBRARIES if seen.get(library) and library not in unused]
    if known.get("version"):
        found.append(f"{record.mechanism.name.removesuffix('_step')} {known['version']}")
    return ", ".join(found)


def names_of(records: Iterable[AuditRecord]) -> list[str]:
    """Names of what was audited; functions that share a name come with their modules."""
    found = {(record.mechanism.name, _path(record)) for record in records}
    alike = collections.Counter(name for name, _ in found)
    return sorted({path.replace(":", ".") if path and alike[name] > 1 else name for name, path in found})


def _path(record: AuditRecord) -> str:
    """The audited function as a suite names it, if the record says."""
    name, given = record.mechanism.name, record.mechanism.parameters.values()
    return next((word for word in given if isinstance(word, str) and word.endswith(f":{name}")), "")


def audited(record: AuditRecord) -> str:
    """The mechanism's name, its command and its libraries."""
    ran, beside = command(record), libraries(record)
    more = "; ".join(filter(None, (f"the command {ran}" if ran else "", f"with {beside}" if beside else "")))
    return f"{record.mechanism.name} ({more})" if more else record.mechanism.name


def trains(record: AuditRecord) -> bool:
    """Whether anything in the record is about DP-SGD: a count with Laplace noise has no batches and no divisor."""
    if record.one_run is not None or record.releases in ("transcript", "final") or record.environment.get("divisor"):
        return True
    parts = (record.claim, record.mechanism, record.neighbours)
    return any(word in part.parameters for part in parts for word in OF_TRAINING)


def how_many(records: tuple[AuditRecord, ...], of: str = "") -> str:
    """How many configurations were audited, and trainings with canaries; audits that could not run are left out."""
    kinds = [
        "training" if record.one_run is not None else "" if record.scores is None else record.scores.what
        for record in records
        if record.ran
    ]
    words = (
        ("", f"configuration{of}", f"configurations{of}"),
        ("training", "training with canaries", "trainings with canaries"),
        ("scores", "set of scores", "sets of scores"),
        ("outputs", "set of outputs", "sets of outputs"),
    )
    parts = [counted(kinds.count(kind), one, more) for kind, one, more in words if kind in kinds]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:]))) or f"0 configurations{of}"


RELATIONS = {
    "add_remove": ("added or removed", "added or removed"),
    "zero_out": ("whose gradient is set to zero", "whose gradients are set to zero"),
    "substitution": ("exchanged for another", "exchanged for others"),
}
"""What happens to the one record, or to the several, in which the two datasets of a pair differ."""


def unit_of_privacy(record: AuditRecord) -> str:
    """What the two datasets differ in: one record or several, or the pair's own word for a record."""
    several = _several(record)
    return f"{several} together" if several else f"one {unit(record)}"


def differ_by(record: AuditRecord) -> str:
    """How the two datasets differ, such as 'one client added or removed'."""
    one, more = RELATIONS.get(record.neighbours.kind, ("", ""))
    several = _several(record)
    return f"{several} {more}".rstrip() + " together" if several else f"one {unit(record)} {one}".rstrip()


def unit(record: AuditRecord) -> str:
    """The word for what a record stands for."""
    return str(record.neighbours.parameters.get("unit", "record"))


def _several(record: AuditRecord) -> str:
    """The number of records, if the datasets differ in a group of them."""
    group = record.neighbours.parameters.get("group", 1)
    return "" if group == 1 else f"{group} {unit(record)}s"
