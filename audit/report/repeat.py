"""How to run an audit again: the Python program that its record describes."""

from __future__ import annotations

from collections.abc import Container

from audit.record.record import AuditRecord, Part

OWN = "{name}  # your own: import it"


def program(record: AuditRecord) -> str:
    """Lines of Python that repeat the trials of a record; what we cannot import is named as the reader's own."""
    from mechanisms.catalogue import CATALOGUE as MECHANISMS
    from mechanisms.catalogue import NEIGHBOURS

    step = _call(record.mechanism, MECHANISMS)
    pair = _call(record.neighbours, NEIGHBOURS)
    implementation, _, words = record.key.partition(":")
    return "\n".join(
        [
            "import jax, numpy",
            "import audit, distinguishers, guarantees, mechanisms",
            "",
            f"step = {step}",
            f"pair = {pair}",
            f"score = {_score(record)}",
            "record = audit.run_audit(",
            "    step, pair, score,",
            f"    claim=guarantees.{record.claim.describe()},",
            f"    trials={record.trials_planned}, risk={record.risk!r}, delta={record.report_delta!r},",
            f'    key=jax.random.wrap_key_data(numpy.uint32([{words}]), impl="{implementation}"),',
            ")",
            "",
        ]
    )


def _call(part: Part, known: Container[str]) -> str:
    return f"mechanisms.{part.describe()}" if part.name in known else OWN.format(name=part.name)


def _score(record: AuditRecord) -> str:
    from distinguishers.catalogue import CATALOGUE

    name, reads = record.distinguisher.name, record.distinguisher.parameters
    if name == "battery":
        return "None  # the default battery"
    if name not in CATALOGUE:
        return OWN.format(name=name)
    given = [key for key in ("mechanism", "neighbours") if key in reads]
    others = [f"{key}={value!r}" for key, value in reads.items() if key not in ("mechanism", "neighbours")]
    words = [{"mechanism": "step", "neighbours": "pair"}[key] for key in given]
    return f"distinguishers.{name}({', '.join([*words, *others])})"
