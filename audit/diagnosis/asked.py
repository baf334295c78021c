"""What is asked about after a verdict, and which share of the risk each question has."""

from __future__ import annotations

import dataclasses

import jax

from audit.diagnosis.all_questions import FEWEST_TRIALS, drawn_in_time
from audit.diagnosis.noise import Array
from audit.diagnosis.told_by_record import divisor_told
from audit.record.record import AuditRecord
from audit.trials.both_sides import Auditable, BothSides, is_foreign
from audit.trials.kept_outputs import most_looked_at
from audit.trials.keys import audit_keys, both_keys
from audit.trials.threefry import fold_in
from guarantees.claim import Claim
from mechanisms.pairs.neighbours import Neighbours

SHARE = 0.2
"""Of the record's risk, for all diagnoses together: a false one sends people after what is right."""
HINTS = 0.02
"""The same where no violation was found: most of the code that is asked about is right."""
OF_STEPS = 1e-3
"""Of that, for steps after the first, which are called short only where they are so by far."""
OF_NUMBERS = 0.1
"""Of that, for the numbers told beside the other records' sum; of a violation also for runs on the same seeds, and
for whether trials are alike. A third each."""
PURPOSE = 0xD1A6
"""Folded into the audit's key: the audit's own keys come from splitting it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked about: a record, the code, and outputs of both its sides."""

    record: AuditRecord
    mechanism: Auditable
    neighbours: Neighbours
    key: jax.Array
    """The audit's own."""
    deadline: float | None
    sides: BothSides
    claim: Claim | None = None
    """That of the record, with its whole curve."""
    drawn: dict[int, tuple[Array, Array]] = dataclasses.field(default_factory=dict)
    """Judged outputs by place, which later questions look at as well: a deadline is for those that are drawn again."""

    @property
    def broken(self) -> bool:
        """Whether the claim was shown to be broken."""
        return self.record.verdict == "violation"

    @property
    def share(self) -> float:
        """Of the record's risk, for all diagnoses."""
        return SHARE if self.broken else HINTS

    @property
    def rounds(self) -> int:
        """Steps of a transcript whose gradients may follow what earlier ones released; 1 for any other release."""
        follows = self.mechanism.kind == "transcript" and follows_steps(self.mechanism)
        return (self.sides.layout().rounds or 1) if follows else 1

    @property
    def risk(self) -> float:
        """For all diagnoses but those of later steps, of the numbers told and of what is asked of all foreign code."""
        numbers = OF_NUMBERS if self.mechanism.gradients_told is not None or is_foreign(self.mechanism) else 0
        return self.share * self.record.risk * (1 - numbers - (OF_STEPS if self.rounds > 1 else 0))

    @property
    def aside(self) -> float:
        """For the numbers told, and as much for each question that is asked of all foreign code after a violation."""
        return OF_NUMBERS / 3 * self.share * self.record.risk

    @property
    def divisor(self) -> float | None:
        """Of the release, as it is told of the user's own code."""
        return None if self.mechanism.gradients_told is None else divisor_told(self.record)

    @property
    def own_key(self) -> jax.Array:
        """None of those that the audit drew from."""
        return fold_in(self.key, PURPOSE)

    def outputs(self, coordinates: int, *, place: int = 0) -> tuple[Array, Array]:
        """Outputs of both sides: of traced code fresh ones, others at every place; of foreign code the judged ones."""
        most = min(most_looked_at(coordinates), self.record.trials_planned // 2)
        judged = audit_keys(self.key)
        keys = judged.without, judged.with_record
        if not is_foreign(self.mechanism):
            keys = both_keys(fold_in(self.own_key, PURPOSE) if place else self.own_key)
        most = max(FEWEST_TRIALS, most)
        known = self.drawn.get(place)
        if known is not None and len(known[0]) >= most:
            return known[0][:most], known[1][:most]
        found = drawn_in_time(self.sides, keys, most, deadline=self.deadline)
        if is_foreign(self.mechanism):
            self.drawn[place] = found
        return found


def follows_steps(mechanism: Auditable) -> bool:
    """Whether gradients may follow earlier steps; those of simulators without a network stay as they are."""
    return mechanism.gradients_told is not None or mechanism.coordinates is not None
