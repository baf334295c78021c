"""Releases, or runs, whose noise shares random numbers: together they cover less than each of them alone."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from mechanisms.adapters.noise_terms import Blocks, Terms, apart, bare, lacking
from mechanisms.adapters.pytorch.replay.cells import Event
from mechanisms.adapters.pytorch.replay.draws import Draw
from mechanisms.adapters.pytorch.replay.facts import Fact
from mechanisms.adapters.pytorch.replay.run import Run
from mechanisms.adapters.pytorch.replay.stacks import Stack
from mechanisms.adapters.pytorch.replay.storages import side_by_side


@dataclasses.dataclass(frozen=True, eq=False)
class Joint:
    """Several releases together, one after the other."""

    events: Sequence[Event]
    terms: Terms
    blocks: Blocks
    """Groups of coordinates whose noise is dependent."""

    @property
    def moved(self) -> np.ndarray:
        """How far the record moves each coordinate."""
        return np.concatenate([event.difference.double().numpy().ravel() for event in self.events])

    def owners(self, places: np.ndarray) -> list[Event]:
        """The releases that hold some coordinates, each once."""
        ends = np.cumsum([event.difference.numel() for event in self.events])
        return [self.events[number] for number in np.unique(np.searchsorted(ends, places, side="right"))]

    @functools.cached_property
    def bare(self) -> Blocks:
        """The blocks with a direction without noise; of one release, only if the record moves along it.

        So of sums that are told with the noise of their records: two may be made of one.
        """
        owners = [self.owners(block.places) for block in self.blocks]
        alone = [len(own) == 1 or all(event.told for event in own) for own in owners]
        return [
            block
            for block, own in zip(self.blocks, alone, strict=True)
            if (bare(self.moved, [block]) if own else lacking([block]))
        ]


def joint(events: Sequence[Event]) -> Joint | None:
    """The noise of several releases together; None if it is unknown."""
    terms = side_by_side([event.terms for event in events])
    if terms is None:
        return None
    blocks = () if terms.plain else terms.covariance()
    return None if blocks is None else Joint(events, terms, blocks)


def squared_length(events: Sequence[Event]) -> float | None:
    """Squared length of what the record moves, in units of the noise; None if dependences are unknown.

    Directions without noise are told elsewhere.
    """
    known = joint(events)
    if known is None:
        if any(event.shared for event in events):
            return None
        return sum(single(event) for event in events)
    blocks = () if known.bare else known.blocks
    return apart(known.moved, known.terms.variance, blocks)


def single(event: Event) -> float:
    """Squared length for one release as if its coordinates were independent; those without noise do not count."""
    there = event.variance > 0
    return float((event.difference.double()[there] ** 2 / event.variance.double()[there]).sum())


def rounds_depend(events: Sequence[Event]) -> bool:
    """Whether releases of different rounds have random numbers in common."""
    known = joint([event for event in events if event.moved and not event.superseded])
    return known is not None and any(
        len({event.round for event in known.owners(block.places)}) > 1 for block in known.blocks
    )


STATE = " from the same state of its generator"
AGAIN = " (the same numbers are added more than once)"
FEWEST = 4
"""Numbers that must agree before two draws are called the same."""


def reused_states(run: Run) -> list[Fact]:
    """Noise that is drawn in a state in which its generator drew before, then batches of two rounds that are."""
    chosen = run.choosing | run.releases.choosing
    by_state: dict[int, list[int]] = collections.defaultdict(list)
    for draw in run.draws:
        if draw.state is not None:
            by_state[draw.state].append(draw.number)
    facts, batches = [], []
    for numbers in by_state.values():
        covering = [number for number in numbers if number in run.releases.covering]
        rest = [number for number in numbers if number in run.releases.covering | chosen]
        if len(numbers) > 1 and covering and len(rest) > 1:
            first, second = (run.draws[number] for number in sorted({covering[-1], *rest})[:2])
            facts.append(_used_twice(first.stack, second.stack, STATE, (first.number, second.number)))
        elif pair := _batches_alike([run.draws[number] for number in numbers if number in chosen], run):
            how = f"{STATE} (for the batches of rounds {pair[0].round} and {pair[1].round})"
            batches.append(_used_twice(pair[0].stack, pair[1].stack, how, (pair[0].number, pair[1].number)))
    return facts + batches


def _batches_alike(draws: list[Draw], run: Run) -> tuple[Draw, Draw] | None:
    """Two draws of one state that choose the records of two rounds; a round may choose them column by column."""
    first, *later = [draw for draw in draws if draw.picks] or [None]
    for second in later:
        if first is not None and second is not None and _is_later(second.round, first.round, run.releases.events):
            return first, second
    return None


def _is_later(second: int, first: int, events: list[Event]) -> bool:
    """Whether a round reads what another one released, or releases the same again."""
    before, after = ([event for event in events if event.round == number] for number in (first, second))
    return first != second and any(
        one.covering & other.choosing
        or (one.moved and one.stack == other.stack and torch.equal(one.difference, other.difference))
        for one in before
        for other in after
    )


def repeated_noise(events: Iterable[Event]) -> list[Fact]:
    """The first release whose noise covers another one too, or covers many coordinates with few numbers."""
    used = [event for event in events if event.moved and not event.superseded]
    known = joint(used)
    return _same_values(used) if known is None else _too_few(known)


def _too_few(known: Joint) -> list[Fact]:
    """Directions in which the record moves releases and their noise does not."""
    owners = [known.owners(block.places) for block in known.bare]
    for first, *others in owners:
        if others:
            return [_used_twice(first.draw or first.stack, others[0].stack, AGAIN)]
    for (event,) in owners:
        own = [block for block, (other,) in zip(known.bare, owners, strict=True) if other is event]
        of = event.difference.numel()
        stacks = {"first": event.draw or event.stack, "second": event.stack, "shared": event.shared}
        left = of - lacking(own)
        words = {"how": f"{'one number' if left == 1 else f'{left} numbers'} for {of} coordinates", "draws": ()}
        return [Fact(kind="key_used_twice", stacks=stacks, words=words)]
    return []


def _same_values(events: Iterable[Event]) -> list[Fact]:
    """The first release whose noise covers another one too, found by values if nobody knows how they were made."""
    known: dict[float, Event] = {}
    for event in events:
        if event.standard is None:
            continue
        # with the other sign they are the same numbers
        values = [float(f"{abs(value):.5g}") for value in event.standard.tolist() if math.isfinite(value)]
        again = collections.Counter(known[value] for value in values if value in known)
        if again and again.most_common(1)[0][1] >= max(FEWEST, len(values) // 2):
            first = again.most_common(1)[0][0]
            return [_used_twice(first.draw or first.stack, event.stack, AGAIN)]
        if len(values) >= FEWEST and len(set(values)) <= len(values) // 2:
            return [
                _used_twice(
                    event.draw or event.stack,
                    event.stack,
                    f" ({len(set(values))} different numbers in {len(values)} coordinates)",
                )
            ]
        known |= dict.fromkeys(values, event)
    return []


def _used_twice(first: Stack, second: Stack, how: str, draws: tuple[int, ...] = ()) -> Fact:
    return Fact(kind="key_used_twice", stacks={"first": first, "second": second}, words={"how": how, "draws": draws})


def drawn_by_the_seed(run: Run, seeds: set[int]) -> bool:
    """Whether all noise that covers the record comes from generators with one of these seeds."""
    return all(run.draws[number].seed in seeds for number in _covering(run))


def same_in_every_run(run: Run, again: Run, outputs: str) -> list[Fact]:
    """Releases whose noise is drawn in one state by two runs with different seeds, a fact for each line that draws."""
    if not same_draws(run, again):
        return []
    covering = _covering(run)
    seeded = {run.draws[n].stack: again.draws[n].seeded for n in covering if run.draws[n].state == again.draws[n].state}
    whole = seeded.keys() == {run.draws[n].stack for n in covering}
    facts = {}
    for event in run.releases.events:
        if event.moved and not event.superseded and event.draw in seeded:
            stacks = {"at": event.origin, "added": event.stack, "draw": event.draw}
            stacks |= {"seeded": seeded[event.draw]} if seeded[event.draw] else {}
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
    """Draws that choose records, from generators that can be asked."""
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
    """Draws of noise that covers the record, from generators that can be asked."""
    return [number for number in sorted(run.releases.covering) if run.draws[number].state is not None]
