"""An audited case under diagnosis, and the share of the risk that each kind of question gets."""

from __future__ import annotations

import dataclasses

import jax

from audit.diagnosis.all_questions import FEWEST_TRIALS, drawn_in_time
from audit.diagnosis.noise import Array
from audit.diagnosis.stated_settings import stated_divisor
from audit.record.record import AuditRecord
from audit.trials.both_sides import Auditable, BothSides, is_foreign
from audit.trials.kept_outputs import most_looked_at
from audit.trials.keys import audit_keys, both_keys
from audit.trials.threefry import fold_in
from guarantees.claim import Claim
from mechanisms.pairs.neighbours import Neighbours

SHARE_AFTER_VIOLATION = 0.2
"""Share of the record's risk for all diagnoses together: a false one sends people after code that is right."""
SHARE_OTHERWISE = 0.02
"""Share of the record's risk for all hints where no violation was found: most of that code is right."""
SHARE_OF_LATER_STEPS = 1e-3
"""Share of the diagnoses' risk for later steps, which are called short of noise only where they clearly are."""
SHARE_OF_STATED_NUMBERS = 0.1
"""Share of the diagnoses' risk for three questions, a third each: the stated noise beside the other records' sum and,
of code that broke its claim, runs on the same seeds and whether trials are alike.
"""
DIAGNOSIS_KEY = 0xD1A6
"""Folded into the audit's key, whose other keys come from splitting it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A record, the code that was audited, and outputs of both its sides."""

    record: AuditRecord
    mechanism: Auditable
    neighbours: Neighbours
    key: jax.Array
    """The audit's own key."""
    deadline: float | None
    sides: BothSides
    claim: Claim | None = None
    """The record's claim, with its whole curve."""
    drawn: dict[int, tuple[Array, Array]] = dataclasses.field(default_factory=dict)
    """Judged outputs by place, kept for later questions: a deadline applies to outputs that are drawn again."""

    @property
    def broken(self) -> bool:
        """Whether the claim was shown to be broken."""
        return self.record.verdict == "violation"

    @property
    def share(self) -> float:
        """Share of the record's risk for all diagnoses."""
        return SHARE_AFTER_VIOLATION if self.broken else SHARE_OTHERWISE

    @property
    def rounds(self) -> int:
        """Steps of a transcript whose gradients may depend on what earlier steps released; 1 for any other release."""
        follows = self.mechanism.kind == "transcript" and follows_steps(self.mechanism)
        return (self.sides.layout().rounds or 1) if follows else 1

    @property
    def risk(self) -> float:
        """Risk of the main questions: not those about later steps, the stated numbers, or all foreign code."""
        numbers = (
            SHARE_OF_STATED_NUMBERS if self.mechanism.gradients_told is not None or is_foreign(self.mechanism) else 0
        )
        return self.share * self.record.risk * (1 - numbers - (SHARE_OF_LATER_STEPS if self.rounds > 1 else 0))

    @property
    def extra_risk(self) -> float:
        """Risk of the question about the stated numbers, and of each for all foreign code after a violation."""
        return SHARE_OF_STATED_NUMBERS / 3 * self.share * self.record.risk

    @property
    def divisor(self) -> float | None:
        """Divisor of the release that the user's own code states, if any."""
        return None if self.mechanism.gradients_told is None else stated_divisor(self.record)

    @property
    def diagnosis_key(self) -> jax.Array:
        """Key of the diagnoses, different from all that the audit drew from."""
        return fold_in(self.key, DIAGNOSIS_KEY)

    def outputs(self, coordinates: int, *, place: int = 0) -> tuple[Array, Array]:
        """Outputs of both sides: fresh ones of traced code, others at every place; the judged ones of foreign code."""
        most = min(most_looked_at(coordinates), self.record.trials_planned // 2)
        judged = audit_keys(self.key)
        keys = judged.without, judged.with_record
        if not is_foreign(self.mechanism):
            keys = both_keys(fold_in(self.diagnosis_key, DIAGNOSIS_KEY) if place else self.diagnosis_key)
        most = max(FEWEST_TRIALS, most)
        known = self.drawn.get(place)
        if known is not None and len(known[0]) >= most:
            return known[0][:most], known[1][:most]
        found = drawn_in_time(self.sides, keys, most, deadline=self.deadline)
        if is_foreign(self.mechanism):
            self.drawn[place] = found
        return found


def follows_steps(mechanism: Auditable) -> bool:
    """Whether gradients may depend on earlier steps: those of simulators without a network do not."""
    return mechanism.gradients_told is not None or mechanism.coordinates is not None
