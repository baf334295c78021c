"""Findings about batches that are not the Poisson batches of the claim."""

from __future__ import annotations

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.places import NOWHERE, Place, spelled
from audit.diagnosis.explain.sentences import found as finding
from audit.diagnosis.explain.sentences import led


def too_often(*, draw: Place, lead: Place, found: float, rate: float) -> Finding:
    """A rate above the claim's; ``lead`` is where it comes from."""
    batch = f"The batch chosen at {spelled(draw)} takes the record with probability {found:.4g}"
    return led(finding(Kind.SAMPLED_OTHERWISE, batch=batch, rate=rate, beside=[draw]), lead)


def of_one_size(
    *, draw: Place = NOWHERE, taken: Place = NOWHERE, size: int, of: int, runs: int, rate: float
) -> Finding:
    """Batches of one size: ``draw`` is where their records are drawn, ``taken`` where they are read if none are."""
    batch = f"The first batch holds {size} of {of} records in all {runs} runs (they are drawn at {spelled(draw)})"
    if draw is NOWHERE:
        batch = f"The first batch holds the same {size} of {of} records in all {runs} runs (read at {spelled(taken)})"
    return finding(Kind.SAMPLED_OTHERWISE, batch=batch, rate=rate, beside=[draw, taken])
