"""Findings about batches that are not the Poisson batches of the claim."""

from __future__ import annotations

import dataclasses

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.places import NOWHERE, Place, spelled
from audit.diagnosis.explain.sentences import called_at, led
from audit.diagnosis.explain.sentences import found as finding


def too_often(*, draw: Place, lead: Place, found: float, rate: float) -> Finding:
    """Finding: a rate above the claim's; ``lead`` is where it comes from."""
    batch = f"The sampler of {spelled(draw)} takes the record with probability {found:.4g}"
    return led(finding(Kind.SAMPLED_OTHERWISE, batch=batch, rate=rate, beside=[draw]), lead)


def drawn_once(*, draw: Place, lead: Place, rounds: int, runs: int | None, rate: float) -> Finding:
    """Finding: one draw for the batches of several rounds; ``lead`` is the line that calls for it.

    ``runs`` are those in all of which it was so; None where the record's number in that draw alone was changed.
    """
    batch = f"One draw, at {spelled(draw)}{called_at(lead, draw)}, chooses the batches of {rounds} rounds: the record "
    batch += "is in all of them or in none" if runs is None else f"is in all of them or in none in all {runs} runs"
    told = finding(Kind.SAMPLED_OTHERWISE, batch=batch, rate=rate, beside=[draw])
    return led(dataclasses.replace(told, says=f"{told.says[:-1]} in each round."), lead)


def drawn_together(*, draw: Place, runs: int, rate: float) -> Finding:
    """Finding: one random number decides for several records."""
    batch = f"One number, drawn at {spelled(draw)}, takes the record together with others, or none of them, in all "
    return finding(Kind.SAMPLED_OTHERWISE, batch=f"{batch}{runs} runs", rate=rate, beside=[draw])


def not_poisson(*, batch: str, draw: Place, rate: float) -> Finding:
    """What many runs show of the records of a batch; ``draw`` is where they are drawn, if that is known."""
    where = "" if draw is NOWHERE else f" (drawn at {spelled(draw)})"
    return finding(Kind.SAMPLED_OTHERWISE, batch=f"{batch}{where}", rate=rate, beside=[draw])


def of_one_size(
    *,
    draw: Place = NOWHERE,
    taken: Place = NOWHERE,
    made: Place = NOWHERE,
    since: str = "",
    size: int,
    of: int,
    runs: int,
    rate: float,
) -> Finding:
    """Batches of one size: ``draw`` is where their records are drawn, ``taken`` where they are read if none are.

    ``made`` is where a library's sampler is made that does it; ``since`` says why, if that is known: a clause.
    """
    where = f"they are drawn at {spelled(draw)}" if taken is NOWHERE else f"read at {spelled(taken)}"
    if made is not NOWHERE and made.own[:1] != (draw if taken is NOWHERE else taken).own[:1]:
        where += f" by a sampler made at {spelled(made)}"
    same = "" if taken is NOWHERE else "the same "
    where += f"; {since}" if since else ""
    batch = f"The first batch holds {same}{size} of {of} records in all {runs} runs ({where})"
    return led(finding(Kind.SAMPLED_OTHERWISE, batch=batch, rate=rate, beside=[draw, taken]), made)
