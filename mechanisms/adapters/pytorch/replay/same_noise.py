"""Noise, or batches, that are the same in every run: a generator is in one state whatever the seed of the trial."""

from __future__ import annotations

import dataclasses

from mechanisms.adapters.pytorch.replay.facts import Fact
from mechanisms.adapters.pytorch.replay.run import Run
from mechanisms.adapters.pytorch.replay.stacks import Stack


def drawn_by_the_seed(run: Run, seeds: set[int]) -> bool:
    """Whether all noise that covers the record comes from generators with one of these seeds."""
    return all(run.draws[number].seed in seeds for number in _covering(run))


def same_in_every_run(run: Run, again: Run, outputs: str) -> list[Fact]:
    """Releases whose noise is drawn in one state by two runs with different seeds, a fact for each line that draws."""
    if not same_draws(run, again):
        return []
    covering = _covering(run)
    same = {run.draws[n].stack for n in covering if run.draws[n].state == again.draws[n].state}
    whole = same == {run.draws[n].stack for n in covering}
    facts = {}
    for event in run.releases.events:
        if event.moved and not event.superseded and event.draw in same:
            stacks = {"at": event.origin, "added": event.stack, "draw": event.draw}
            seeded = next((again.draws[n].seeded for n in covering if run.draws[n].stack == event.draw), ())
            stacks |= {"seeded": seeded} if seeded else {}
            words = {"leaf": outputs if whole else "a part of what is released"}
            facts.setdefault(event.draw, Fact(kind="released_without_noise", stacks=stacks, words=words))
    return list(facts.values())


def same_batches_in_every_run(run: Run, again: Run) -> list[Fact]:
    """The first line whose draws choose records, in one state in two runs with different seeds."""
    if not same_draws(run, again):
        return []
    for number in picking(run):
        draw, then = run.draws[number], again.draws[number]
        if draw.state == then.state:
            seeded = {"seeded": then.seeded} if then.seeded else {}
            return [Fact(kind="in_every_batch", stacks={"draw": draw.stack, **seeded})]
    return []


def picking(run: Run) -> list[int]:
    """Draws that choose records, of generators that can be asked."""
    chosen = sorted(run.choosing | run.releases.choosing)
    return [number for number in chosen if run.draws[number].picks and run.draws[number].state is not None]


def of_one_seed(facts: list[Fact], run: Run, fresh: Run) -> list[Fact]:
    """Those of them whose generator has one seed also where other numbers are drawn: a seed may come from a draw."""
    return [fact for fact in facts if _seeds(run, fact.stacks["draw"]) & _seeds(fresh, fact.stacks["draw"])]


def _seeds(run: Run, where: Stack) -> set[int | None]:
    return {draw.seed for draw in run.draws if draw.stack == where}


def with_seedings(facts: list[Fact], run: Run, again: Run) -> list[Fact]:
    """Facts about two draws, with where the generator of the later one was seeded, as another run has seen it."""
    if not same_draws(run, again):
        return facts
    seeded = [again.draws[max(fact.words["draws"])].seeded for fact in facts]
    return [
        dataclasses.replace(fact, stacks={"seeded": where, **fact.stacks}) if where else fact
        for fact, where in zip(facts, seeded, strict=True)
    ]


def same_draws(run: Run, again: Run) -> bool:
    """Whether two runs draw at the same lines in the same order."""
    return [draw.stack for draw in again.draws] == [draw.stack for draw in run.draws]


def _covering(run: Run) -> list[int]:
    """Draws of noise that covers the record, of generators that can be asked."""
    return [number for number in sorted(run.releases.covering) if run.draws[number].state is not None]
