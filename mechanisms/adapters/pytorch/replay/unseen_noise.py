"""Noise that PyTorch draws and that reaches a release by NumPy or by Python's numbers, where nothing is followed."""

from __future__ import annotations

from collections.abc import Callable

from mechanisms.adapters.pytorch.replay.comparing import apart_from, releases_differ
from mechanisms.adapters.pytorch.replay.draws import CONTINUOUS, UNIFORM, Bank, Draw
from mechanisms.adapters.pytorch.replay.run import Run
from mechanisms.adapters.pytorch.replay.stacks import Stack

STIRRED, OF_COINS = 1.01, 1.001
"""By how much noise is multiplied to see what it reaches; uniform numbers by less, since many of them are coins."""

Again = Callable[[Bank], Run | None]
"""Runs the code of a run once more, on other draws."""


def outputs_reached(run: Run, bank: Bank, again: Again, *, by_any: bool) -> frozenset[str]:
    """The outputs that change with noise: ``by_any``, or by what left PyTorch before data came from outside of it."""
    noise = _noise(run) if by_any else [draw for draw in _loose(run) if draw.number < run.lifted]
    stirred = again(_stirred(bank, noise)) if noise else run
    if stirred is None:
        return frozenset(run.outputs)
    then = stirred.outputs
    return frozenset(
        name for name, out in run.outputs.items() if name not in then or apart_from(out.value, then[name].value)
    )


def beside_tensors(run: Run, bank: Bank, again: Again) -> tuple[Stack, int] | None:
    """Where noise is first drawn that no operation adds to data, and the first round that it nevertheless changes.

    Rounds before are not made of it; one after the last is what such noise only changes in the end. None without any.
    """
    loose = _loose(run)
    stirred = again(_stirred(bank, loose)) if loose else None
    if stirred is None:
        return None
    then = stirred.releases.meetings
    for slot, met in run.releases.meetings.items():
        own = then.get(slot)
        if own is None or apart_from(met.value, own.value) or apart_from(met.noise, own.noise):
            return loose[0].stack, met.round
    return (loose[0].stack, run.releases.round + 1) if releases_differ(run, stirred) else None


def _noise(run: Run) -> list[Draw]:
    """Draws that noise may be made of: no weights, and no coins that choose records."""
    return [draw for draw in run.draws if draw.name in CONTINUOUS and draw.entries and draw.number not in run.cuts]


def _loose(run: Run) -> list[Draw]:
    """Draws that no operation used together with data."""
    return [draw for draw in _noise(run) if draw.number not in run.used | run.releases.noise]


def _stirred(bank: Bank, draws: list[Draw]) -> Bank:
    return bank.scaled({draw.slot: OF_COINS if draw.name in UNIFORM else STIRRED for draw in draws})
