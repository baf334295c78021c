"""What still differs between the two sides although noise was made equal, and numbers of the data that decide it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Container

from mechanisms.adapters.pytorch.replay import comparing
from mechanisms.adapters.pytorch.replay.cells import Cell
from mechanisms.adapters.pytorch.replay.facts import Fact
from mechanisms.adapters.pytorch.replay.run import Run, Sway
from mechanisms.adapters.pytorch.replay.stacks import Stack
from mechanisms.adapters.same_draws import OF_STEP
from mechanisms.release import OTHER_STEPS

OTHER_NUMBER = ", as a number that is not the same for both datasets"
CHANGED, BARE, UNSEEN = "changed_after_release", "released_without_noise", "not_followed"
SWAYS: tuple[Sway, ...] = ((0.5, 1.5), (1.5, 0.5), (1e4, 1e4), (-1e4, -1e4))
"""By which numbers are multiplied in turns: a little, for weights that are normalised, and beyond whatever they may be
compared with."""
DECIDES = (
    "what is released depends on a number of the data that Python reads, as a branch on a loss does; here both "
    "datasets take the same way"
)
OUTSIDE = "{} goes through NumPy or Python's own numbers, where the noise that reaches it is not followed"


def differing(
    one: Run,
    other: Run,
    exceeds: Callable[[Stack], bool],
    reached: Callable[[bool], Container[str]],
) -> tuple[list[Fact], bool]:
    """The facts, and whether something differs that cannot be looked through.

    ``exceeds`` says whether single records that get noise at a place are not bounded there, ``reached`` which outputs
    change with noise that is not followed: with any, or only with what left PyTorch before data came back.
    """
    if one.releases.ended or other.releases.ended:
        return [], False
    if one.outputs.keys() != other.outputs.keys():
        return [_fact(UNSEEN, why=_other_names(one, other))], True
    if other.releases.uncovered and (other.releases.reached or comparing.outputs_differ(one, other)):
        return [other.releases.uncovered[0]], True
    changed = dict.fromkeys(other.releases.reached, OTHER_NUMBER)
    """Where raw data met a release, and how: each place once."""
    unseen: list[Fact] = []
    bare: dict[tuple[tuple[str, Stack], ...], list[str]] = collections.defaultdict(list)
    opaque = False
    for name, mine in other.outputs.items():
        if not comparing.apart_from(one.outputs[name].value, mine.value):
            continue
        cell, stops = mine.cell, other.numbers or one.numbers
        if cell is not None and cell.drowned and exceeds(cell.noised):
            stacks = {"at": cell.summed, "noised": cell.noised, "bounded": cell.drowned}
            bare[tuple(stacks.items())].append(name)
        elif cell is None or cell.opaque:
            opaque = True
            by, where = ("", ()) if cell is None else cell.opaque_by
            where = where or (() if cell is None else cell.summed)
            why = f"{name} differs and came there by {by or 'a way that is not followed'}"
            unseen.append(_fact(UNSEEN, {"at": where}, why=why))
        elif cell.changed and cell.stepped and cell.stepped == other.early not in other.covered_steps:
            bare[_without_noise(cell, other)].append(name)
        elif cell.changed and (stacks := _in_another_round(cell.changed, other)):
            bare[tuple(stacks.items())] = [f"The sum of round {other.raw[cell.changed][1]}"]
        elif cell.changed:
            changed.setdefault(cell.changed, OTHER_NUMBER if cell.changed in other.releases.leaked else "")
        elif cell.released and not cell.data:
            # noise covers the value of each side: something chose between them
            if stops:
                changed.setdefault(stops[-1], f", and decide which value {name} has")
            else:
                unseen.append(_fact(UNSEEN, why=f"{name} is another released value on each of the two datasets"))
        elif name in reached(not cell.summed):
            opaque = True
            unseen.append(_fact(UNSEEN, {"at": cell.summed}, why=OUTSIDE.format(name)))
        else:
            bare[_without_noise(cell, other)].append(name)
    told = [_fact(CHANGED, {"at": at}, origin=origin) for at, origin in changed.items()]
    told += [*unseen, *(_bare(dict(stacks), names, other) for stacks, names in bare.items())]
    return told, opaque or bool(other.releases.reached)


def noise_apart(run: Run) -> list[Fact]:
    """Where noise was scaled otherwise than in the reference, or is drawn for each record, each place once."""
    released, facts = {event.origin for event in run.releases.events}, []
    for at, draw, origin in dict.fromkeys(run.releases.scaled):
        if at in run.of_each and not origin:
            facts.append(Fact(kind="noise_scale_from_data", stacks={"each": draw}))
            continue
        words = {"of_itself": origin in released, "scales": run.scales.get(at)}
        stacks = {"origin": origin, "at": at, "draw": draw}
        facts.append(Fact(kind="noise_scale_from_data", stacks=stacks, words=words))
    return facts


def _bare(stacks: dict[str, Stack], names: list[str], run: Run) -> Fact:
    """Outputs without noise; of weights also how many steps change them so."""
    leaf = comparing.together(names)
    if "stepped" not in stacks:
        lacking = {name.partition(OF_STEP)[2] for name in names}
        of_steps = [out for name, out in run.outputs.items() if name.partition(OF_STEP)[2] in lacking]
        if "looped" in stacks and not any(out.cell is not None and out.cell.covered for out in of_steps):
            # all of a step lacks it: what decides is no loop over its tensors
            stacks["chosen"] = stacks.pop("looped")
        return _fact(BARE, stacks, leaf=leaf)
    steps = max(run.steps[stacks["stepped"]].values())
    return Fact(kind=BARE, stacks=stacks, words={"leaf": leaf, "steps": steps, "early": stacks["stepped"] == run.early})


def _in_another_round(changed: Stack, run: Run) -> dict[str, Stack]:
    """Where raw data that meet a release have noise added in another round; nothing where they have it in none."""
    origin, number = run.raw.get(changed, ((), 0))
    events = [event for event in run.releases.events if origin and event.origin == origin and event.stack != changed]
    if not events or number in {event.round for event in events}:
        return {}
    return {"at": origin, "noisy": events[0].stack, "chosen": events[0].stack}


def _without_noise(cell: Cell, run: Run) -> tuple[tuple[str, Stack], ...]:
    """Where a tensor without noise was summed, where others summed there get theirs, and where it was left out."""
    told = {where for where, _ in run.releases.told}
    unused = (event.stack for event in run.releases.events if event.origin == cell.summed and event.origin)
    if not cell.left and (dropped := next((where for where in unused if where not in told), ())):
        return ("at", cell.summed), ("dropped", dropped)
    if cell.stepped and not cell.left and cell.stepped not in run.covered_steps:
        private = next(iter([*run.covered_steps, *(event.stack for event in run.releases.events)]), ())
        return ("at", cell.summed), ("stepped", cell.stepped), ("private", private)
    at = cell.left_sum or cell.summed or next((event.origin for event in cell.events), ())
    others = next((event for event in run.releases.events if event.origin == at), None)
    noisy, drawn = ((), ()) if others is None else (others.stack, others.draw)
    rounds = [event.round for event in run.releases.events if event.stack == noisy]
    # what has none may pass the line that adds it
    left = cell.left or (run.plain[noisy] or drawn if noisy in run.plain else ())
    looped = noisy if not left and len(set(rounds)) < len(rounds) else ()
    places = {"at": at, "noisy": noisy, "looped": looped, "left": left}
    return tuple((what, where) for what, where in places.items() if where or what == "at")


def _other_names(one: Run, other: Run) -> str:
    """How the outputs of the two datasets are not the same ones: another number of steps, or other tensors."""
    names = [{name.partition(OF_STEP)[0] for name in run.outputs} for run in (one, other)]
    steps = [len({name.partition(OF_STEP)[2] for name in run.outputs}) for run in (one, other)]
    if names[0] != names[1] or steps[0] == steps[1]:
        return "the two datasets release tensors of different names"
    return f"the training takes {steps[0]} steps without the record and {steps[1]} with it. {OTHER_STEPS}"


def _fact(kind: str, stacks: dict[str, Stack] | None = None, **words: str) -> Fact:
    return Fact(kind=kind, stacks=stacks or {}, words=words)


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Those that ``other`` reads otherwise than ``one``; ``swayed`` runs that side with others in their place."""

    one: Run
    other: Run
    swayed: Callable[[dict[Stack, Sway]], Run | None]

    def deciding_alike(self) -> list[Fact]:
        """That some decide what is released, although both datasets take the same way."""
        read = self.other.ledger.read_otherwise()
        ended = not read
        for sway in SWAYS if read else ():
            run = self.swayed(dict.fromkeys(read, sway))
            if run is not None and comparing.releases_differ(self.one, run):
                break
            ended |= run is not None
        else:
            # an error in one run is that of a check, as of labels that one_hot is given
            if ended:
                return []
        return [Fact(kind="not_followed", stacks={"at": read[-1]}, words={"why": DECIDES})]

    def mixing(self) -> list[Fact]:
        """Where one of several records is read that changes what they add, the last of them."""
        read = [where for sums, where in self._deciding() if sums]
        return [Fact(kind="records_mixed_before_sum", stacks={"at": where}) for where in read[:1]]

    def through(self, fact: Fact) -> Fact:
        """Records that are mixed for no reason that an operation shows: with where such a number is read."""
        if fact.kind != "records_mixed_before_sum" or fact.words or "through" in fact.stacks:
            return fact
        read = [{"through": one.stacks["at"]} for one in self.mixing()]
        return dataclasses.replace(fact, stacks={**fact.stacks, **(read[0] if read else {})})

    def beside(self, fact: Fact) -> Fact:
        """A released value that meets a number of the data: with where Python read it, if it is such a number."""
        if fact.words.get("origin") != OTHER_NUMBER:
            return fact
        # one that changes no sum does something else
        _, number = min(self._deciding(), key=lambda found: found[0], default=(False, None))
        if number is not None:
            return dataclasses.replace(fact, stacks={**fact.stacks, "number": number})
        scales = self.other.scales.get(fact.stacks["at"])
        return fact if scales is None else dataclasses.replace(fact, words={**fact.words, "scales": scales})

    def _deciding(self) -> list[tuple[bool, Stack]]:
        """Where those are read that change what is released, the last first, and whether they change a sum."""
        runs = [(where, self.swayed({where: SWAYS[0]})) for where in reversed(self.other.ledger.read_otherwise())]
        changed = [(where, run) for where, run in runs if run is not None and comparing.releases_differ(self.one, run)]
        return [(comparing.first_sums_differ(self.one, run), where) for where, run in changed]
