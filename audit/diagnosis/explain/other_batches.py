"""Findings about batches that are not the Poisson batches of the claim."""

from __future__ import annotations

import dataclasses

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.places import NOWHERE, Place, spelled
from audit.diagnosis.explain.sentences import called_at, led
from audit.diagnosis.explain.sentences import found as finding


def too_often(*, draw: Place, lead: Place, found: float, rate: float) -> Finding:
    """A rate above the claim's; ``lead`` is where it comes from."""
    batch = f"The sampler of {spelled(draw)} takes the record with probability {found:.4g}"
    return led(finding(Kind.SAMPLED_OTHERWISE, batch=batch, rate=rate, beside=[draw]), lead)


def drawn_once(*, draw: Place, lead: Place, rounds: int, runs: int, rate: float) -> Finding:
    """One draw for the batches of several rounds; ``lead`` is the line that calls for it."""
    batch = f"One draw, at {spelled(draw)}{called_at(lead, draw)}, chooses the batches of {rounds} rounds: the record "
    batch += f"is in all of them or in none in all {runs} runs"
    told = finding(Kind.SAMPLED_OTHERWISE, batch=batch, rate=rate, beside=[draw])
    return led(dataclasses.replace(told, says=f"{told.says[:-1]} in each round."), lead)


def of_one_size(
    *, draw: Place = NOWHERE, taken: Place = NOWHERE, size: int, of: int, runs: int, rate: float
) -> Finding:
    """Batches of one size: ``draw`` is where their records are drawn, ``taken`` where they are read if none are."""
    batch = f"The first batch holds {size} of {of} records in all {runs} runs (they are drawn at {spelled(draw)})"
    if draw is NOWHERE:
        batch = f"The first batch holds the same {size} of {of} records in all {runs} runs (read at {spelled(taken)})"
    return finding(Kind.SAMPLED_OTHERWISE, batch=batch, rate=rate, beside=[draw, taken])
