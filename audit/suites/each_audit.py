"""Risk, p-value and key of each audit of a suite, which follow from the suite's risk and seed and from earlier looks.

Five looks at a risk of .05 each make .226 of it with fresh trials, 1 - .95^5, and about .14 where each look adds to the
trials of the one before. Look k at 2^-k of the risk, with trials of its own, keeps the sum below the risk, whatever was
seen before and however many looks follow. Nothing heavy is imported here.
"""

from __future__ import annotations

import functools

from audit.record.record import AuditRecord, SuitePart
from audit.trials.seeds import require_seed
from audit.trials.threefry import IMPLEMENTATION, threefry
from guarantees.numerics.rounding import at_most

LOOK = 0x6C6F6F6B
"""Folded into a key before the number of a look; larger than the bytes of names."""


def risk_of_each(suite: SuitePart, look: int) -> float:
    """Risk of each audit of a suite at one look."""
    return suite.risk * share_of(look) / suite.audits


def among(audits: int, p_value: float, *, look: int) -> float:
    """Adjusted p-value of one of several audits that share the risk of a look evenly."""
    return min(1.0, audits * p_value / share_of(look))


def folded(name: str, look: int) -> tuple[int, ...]:
    """Numbers folded into the suite's key for one audit and look."""
    return (*name.encode(), *((LOOK, look) if look else ()))


def key_text(seed: int, name: str, look: int = 0) -> str:
    """The key of one audit as records write it."""
    require_seed(seed)
    high, low = functools.reduce(lambda words, number: threefry(words, (0, number)), folded(name, look), (0, seed))
    return f"{IMPLEMENTATION}:{high},{low}"


def share_of(look: int) -> float:
    """Share of the suite's risk for a look: all of it for the only one (0), otherwise 2^-look."""
    return 2.0**-look if look else 1.0


def unnoticed(earlier: tuple[AuditRecord, ...], now: tuple[AuditRecord, ...]) -> list[str]:
    """Warn of every audit that was looked at before with other trials, and not as an earlier look.

    The same audit has the same name, mechanism, pair, distinguisher, claim and code. The same trials under the same key
    are a repetition, not a look.
    """
    before = {record.name: record for record in earlier}
    sentences = []
    for record in now:
        old = before.get(record.name)
        if old is None or not (old.ran and record.ran and _same_audit(old, record)):
            continue
        repeated = (old.key, old.trials_planned) == (record.key, record.trials_planned)
        if not repeated and not 0 < old.look < record.look:
            sentences.append(_sentence(old, record))
    return sentences


def _same_audit(old: AuditRecord, new: AuditRecord) -> bool:
    """Whether two records are of the same audit."""

    def parts(record: AuditRecord) -> tuple[object, ...]:
        own = (record.mechanism, record.neighbours, record.distinguisher)
        return (*own, record.claim.describe(), record.environment.get("code"))

    return parts(old) == parts(new)


def _sentence(old: AuditRecord, new: AuditRecord) -> str:
    """The warning about one audit."""
    both = at_most(old.risk + new.risk, ".2g")
    return (
        f"{new.name!r} was audited before, with {old.trials_planned:,} trials at risk {old.risk:.2g}, and that record "
        f"is replaced: the two looks together may be wrong with probability {both}. To look again "
        "within one risk, plan for it from the start: --look 1, then --look 2 and so on (look k spends 2^-k of the "
        "risk on new trials), or --stop-early."
    )
