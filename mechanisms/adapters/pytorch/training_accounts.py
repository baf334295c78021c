"""What the Opacus accountants of a user's training promise."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np

from guarantees.checks import require
from guarantees.claim import Claim
from guarantees.families.accountant_tables import Entry, claim_from_history, claim_from_table
from guarantees.vocabulary import Unit
from mechanisms.adapters.pytorch.batches_seen import BatchesSeen, batches_seen
from mechanisms.adapters.pytorch.for_opacus import quiet
from mechanisms.adapters.pytorch.opacus_claims import not_poisson, renyi_kept, unequal
from mechanisms.adapters.pytorch.record_gradients import Run
from mechanisms.adapters.pytorch.watch import Watch
from mechanisms.pairs.neighbours import Neighbours


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accounts:
    """The accountants that a training makes, read after one run on each dataset."""

    run: Run
    name: str
    steps: float
    """After which the run is ended."""
    unit: Unit

    def history(self, dataset: Any) -> list[Entry]:
        """(noise multiplier, rate, steps) as the accountants of one run on this dataset keep them."""
        if isinstance(dataset, Neighbours):
            raise TypeError("history(dataset) reads one dataset, got a pair; ask for pair.without or pair.with_record.")
        return self._seen(dataset)[0]

    def claim(self, neighbours: Neighbours, *, deltas: Sequence[float] | None = None) -> Claim:
        """By their histories, composed exactly; with ``deltas`` by the epsilons that they print."""
        if not isinstance(neighbours, Neighbours):
            raise TypeError(
                f"claim(pair) reads both datasets of a pair, got {type(neighbours).__name__}; "
                "build one with mechanisms.add_record(dataset, record)."
            )
        sides = (neighbours.without, neighbours.with_record)
        if deltas is None:
            histories, seen = zip(*(self._seen(side) for side in sides), strict=True)
            entries, note = _weaker(histories), _note(self.name, histories, seen)
            source = f"the accountant of {self.name}, Opacus {version_of('opacus')}, composed by this package{note}"
            return claim_from_history(entries, relation=neighbours.relation, unit=self.unit, source=source)
        require("deltas", len(deltas) and all(0 < delta < 1 for delta in deltas), "numbers in (0, 1)", deltas)
        relation = neighbours.relation
        require("relation", relation != "substitution", "one that Opacus's accountants cover", relation)
        with renyi_kept():
            books, printed, seen = zip(*(self._printed(side, deltas) for side in sides), strict=True)
        # an accountant may print an epsilon below 0, which promises what 0 does
        points = list(zip(np.max(printed, axis=0, initial=0.0).tolist(), deltas, strict=True))
        note = _note(self.name, books, seen)
        source = f"get_epsilon of the accountant of {self.name}, Opacus {version_of('opacus')}{note}"
        return claim_from_table(points, relation=relation, unit=self.unit, source=source)

    def _seen(self, dataset: Any) -> tuple[list[Entry], BatchesSeen]:
        """The history, and the batches beside it."""
        accountants, batches = self._accountants(dataset)
        books = [accountant.history for accountant in accountants]
        return [(float(noise), float(rate), int(steps)) for book in books for noise, rate, steps in book], batches

    def _printed(self, dataset: Any, deltas: Sequence[float]) -> tuple[list[Entry], list[float], BatchesSeen]:
        """The history of the one accountant, its epsilons, and the batches beside it."""
        found, batches = self._accountants(dataset)
        require("train", len(found) == 1, "a training with one accountant, which deltas= asks for epsilon", len(found))
        with quiet():
            return found[0].history, [float(found[0].get_epsilon(delta)) for delta in deltas], batches

    def _accountants(self, dataset: Any) -> tuple[list[Any], BatchesSeen]:
        watch = Watch(seed=0, steps=self.steps, accounts=True)
        with contextlib.suppress(ImportError):
            # its optimizers are seen if it is there before the training
            importlib.import_module("opacus")
        batches = batches_seen(lambda: self.run(watch, dataset))
        counted = [accountant for accountant in watch.accountants if accountant.history]
        if not counted:
            why = "made no Opacus accountant; "
            if watch.accountants:
                why = (
                    "made an Opacus accountant that counted no step: the optimizer of make_private took none. "
                    "See whether the loop steps the one that make_private was given, or "
                )
            raise ValueError(
                f"{self.name} {why}state the claim yourself: "
                "guarantees.poisson_training(...), claim_from_history(...), claim_from_table(...)."
            )
        return counted, batches


def version_of(library: str) -> str:
    """The installed version; empty where there is none."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


def _note(name: str, books: Sequence[list[Entry]], seen: Sequence[BatchesSeen]) -> str:
    """Tells whoever asked for the claim where the first rates differ, or else the divisors, and of other batches."""
    rates, divisors = (books[0][0][1], books[1][0][1]), (seen[0].divisor, seen[1].divisor)
    return unequal(rates, divisors, stacklevel=4) + not_poisson(name, seen[0].not_poisson, stacklevel=4)


def _weaker(histories: Sequence[list[Entry]]) -> list[Entry]:
    """An account that promises no more than either: entry by entry less noise, more often, for longer."""
    one, other = histories
    if len(one) != len(other):
        raise ValueError(
            f"the accounts of the two datasets have {len(one)} and {len(other)} entries and cannot be compared: {one}, "
            f"{other}; state the claim with guarantees.claim_from_history."
        )
    return [(min(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2])) for a, b in zip(one, other, strict=True)]
