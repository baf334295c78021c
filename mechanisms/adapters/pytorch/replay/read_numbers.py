"""Numbers of the data that Python reads: whether others in their place would change what is released."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from mechanisms.adapters.pytorch.replay.comparing import first_sums_differ, releases_differ
from mechanisms.adapters.pytorch.replay.differing_outputs import OTHER_NUMBER
from mechanisms.adapters.pytorch.replay.facts import Fact
from mechanisms.adapters.pytorch.replay.run import Run, Sway
from mechanisms.adapters.pytorch.replay.stacks import Stack

SWAYS: tuple[Sway, ...] = ((0.5, 1.5), (1.5, 0.5), (1e4, 1e4), (-1e4, -1e4))
"""By which numbers are multiplied in turns: a little, for weights that are normalised, and beyond whatever they may be
compared with."""
DECIDES = (
    "what is released depends on a number of the data that Python reads, as a branch on a loss does; here both "
    "datasets take the same way"
)


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
            if run is not None and releases_differ(self.one, run):
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
        if fact.kind != "records_mixed_before_sum" or fact.words or {*fact.stacks} != {"at"}:
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
        changed = [(where, run) for where, run in runs if run is not None and releases_differ(self.one, run)]
        return [(first_sums_differ(self.one, run), where) for where, run in changed]
