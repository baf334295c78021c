"""The runs of one replay: both datasets on the same draws, and changed ones beside them."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Set
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mechanisms.adapters.joining_rate import LARGEST_UNIFORM
from mechanisms.adapters.pytorch.replay.comparing import holding, releases_differ, together, took_part
from mechanisms.adapters.pytorch.replay.differing_outputs import SWAYS, Numbers
from mechanisms.adapters.pytorch.replay.draws import PLACING, Bank, Seedings, Slot, cut_otherwise
from mechanisms.adapters.pytorch.replay.facts import Fact
from mechanisms.adapters.pytorch.replay.records import place_of_record, same_batches, same_orders
from mechanisms.adapters.pytorch.replay.run import Run, Sway
from mechanisms.adapters.pytorch.replay.stacks import Stack, stack
from mechanisms.adapters.pytorch.replay.storages import tensors_among
from mechanisms.adapters.pytorch.replay.unseen_noise import outputs_reached
from mechanisms.adapters.pytorch.streams import generators_kept, seed_all
from mechanisms.pairs.lent import copied

ATTEMPTS = 4
"""Draws that are tried until a batch holds the record."""
CHOSEN_OTHERWISE = (
    "on equal draws the two datasets choose otherwise at a few places of other records, as where those that were taken "
    "are packed in front, or a rate is one over the number of records"
)

Code = Callable[[Any, int, Callable[[str, Any], None]], None]
"""Runs on a dataset with a seed and tells of every tensor that it releases."""


class Runs:
    """Runs of one piece of code on a pair, all with the same draws."""

    def __init__(
        self,
        code: Code,
        without: Any,
        with_record: Any,
        *,
        seed: int,
        noise_multiplier: float | None,
        clip: float | None = None,
        company: tuple[bool, ...] = (),
        rate: float | None = None,
    ):
        self._code, self._without, self._with, self._seed = code, without, with_record, seed
        self._stated, self._clip, self._company, self._rate = noise_multiplier, clip, company, rate
        self._place = place_of_record(without, with_record)
        self._bank = Bank()
        self._one: Run | None = None
        self._full: Run | None = None
        """On the dataset that lacks the record and on that which has it, as they are."""
        self._facts: list[Fact] = []
        self._most = math.inf
        """The last round that is followed."""

    def _say(self, kind: str, stacks: dict[str, Stack], **words: Any) -> None:
        self._facts.append(Fact(kind=kind, stacks=stacks, words=words))

    def _run(
        self,
        dataset: Any,
        reference: Run | None,
        seed: int | None = None,
        *,
        stirred: bool = False,
        seedings: Seedings | None = None,
        bank: Bank | None = None,
        swayed: dict[Stack, Sway] | None = None,
        rounds: float | None = None,
        wanted: Set[Slot] = frozenset(),
    ) -> Run:
        run = Run(bank or self._bank, reference, seedings, swayed)
        run.releases.most, run.ledger.wanted = rounds or self._most, wanted
        lent = copied(dataset)
        run.mark(lent)
        with generators_kept():
            if stirred and seed is not None:
                # code that takes what the process's generators give has other numbers in every trial
                seed_all(~seed & 2**63 - 1)
            try:
                run.follow(lambda: self._code(lent, self._seed if seed is None else seed, run.tell))
            except Exception as error:
                side = "without" if dataset is self._without else "with"
                error.add_note(f"it happens on the dataset {side} the record, with draws that both share")
                raise
        return run

    def _further(self, dataset: Any, reference: Run | None, **more: Any) -> Run | None:
        """A run on data that nobody promised would do: None where the code stops with an error, or sorts them anew."""
        try:
            run = self._run(dataset, reference, **more)
        except Exception:
            return None
        if reference is None or self._place is None:
            return run
        return run if same_orders(reference.reads.sorted, run.reads.sorted, self._place) else None

    def _pair(self) -> tuple[Run, Run]:
        """Both sides, on draws with which the record takes part if such are found."""
        one, other, chosen = Run(self._bank), Run(self._bank), []
        for attempt in range(ATTEMPTS):
            self._seed += attempt
            taken = LARGEST_UNIFORM if attempt % 2 else 0.0
            self._bank = Bank(self._place, taken=taken, company=self._company)
            one = self._run(self._without, None)
            other = self._run(self._with, one)
            if apart := cut_otherwise(one.draws, other.draws):
                self._bank.level = {place: {} for place in apart}
                one = self._run(self._without, None)
                other = self._run(self._with, one)
            if lost := not_a_number(other, functools.partial(self._further, self._with, one)):
                self._facts += lost
                return one, other
            if other.ledger.choice.apart and not other.ledger.choice.differs:
                # a rate of one over the number of records; other draws show nothing of it
                chosen.append(other.ledger.choice.stack)
                continue
            if other.releases.astray or one.ledger.phase != other.ledger.phase or took_part(one, other):
                return one, other
        if chosen:
            self._say("not_followed", {"at": chosen[-1]}, why=CHOSEN_OTHERWISE)
            return one, other
        such = "records that do not fill the last one are left out"
        if any(draw.picks and draw.name in PLACING for draw in other.draws):
            such = "their places are drawn, with replacement maybe"
        elif self._bank.permuted:
            such = "batches are cut from a permutation, which has no draws in common for N and N + 1 records"
        held = self._place is not None and any(self._place.index in rows for rows in other.reads.batches.values())
        reason = ", as where" if held else f": no batch held it, as where {such}, or"
        why = f"in {ATTEMPTS} runs the record changed nothing that is released{reason} its gradient is zero"
        self._say("not_followed", {}, why=why)
        return one, other

    def once_more(self, side: int) -> None:
        """One dataset again, the first or the second, on the same draws."""
        self._further((self._without, self._with)[side], None)

    def _of_another_seed(self) -> Run | None:
        return self._further(self._with, None, seed=self._seed + 1, stirred=True, seedings=Seedings())

    def outputs(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] | None:
        """What both sides release on the same draws, nothing made equal; None where PyTorch draws nothing."""
        one, _ = self._pair()
        if not one.draws:
            return None
        runs = one, self._run(self._with, None)
        first, second = ({name: out.value for name, out in run.outputs.items()} for run in runs)
        return first, second

    def _noise_of_each(self, one: Run, other: Run) -> Stack:
        """Where noise is drawn more often with the record, whatever numbers Python reads: for each record."""
        before, after = map(_at_first, (one, other))
        if not before <= after or len(extra := after - before) != 1:
            return ()
        for sway in SWAYS:
            run = self._further(self._without, None, swayed=dict.fromkeys(one.ledger.read, sway))
            if run is None or _at_first(run) != before:
                return ()
        (where,) = extra
        return where if where in {one.draws[number].stack for number in one.releases.noise} else ()

    def _moves_without_draws(self, one: Run) -> bool:
        """Whether another seed changes something although every draw that is seen stays as it was."""
        again = self._further(self._without, None, seed=self._seed + 1)
        return again is None or releases_differ(one, again)

    def _numbers(self, one: Run, other: Run) -> Numbers:
        return Numbers(one, other, lambda swayed: self._further(self._without, None, swayed=swayed))

    def _elsewhere(self, one: Run, other: Run) -> bool:
        """Whether a batch holds others on the two datasets, beside the one record, or in another order."""
        place = self._place
        alike = place is None or same_batches(one.reads.batches, other.reads.batches, place)
        return not alike or (place is not None and not same_orders(one.reads.sorted, other.reads.sorted, place))

    def _last_round(self) -> float:
        """Up to which both sides start each round alike: what no noise is seen to cover moves every later record."""
        if any(fact.words.get("early") for fact in self._facts):
            return 0
        return 1 if {"released_without_noise", "not_followed"} & {fact.kind for fact in self._facts} else math.inf

    def _reached(self, one: Run) -> Callable[[bool], frozenset[str]]:
        return functools.cache(lambda by_any: outputs_reached(one, self._bank, self._on_draws, by_any=by_any))

    def _on_draws(self, bank: Bank) -> Run | None:
        return self._further(self._without, None, bank=bank)


def _at_first(run: Run) -> collections.Counter[Stack]:
    """How often each place draws in the first round: later ones may have other batches."""
    return collections.Counter(draw.stack for draw in run.draws if draw.round == 1)


class _First(TorchDispatchMode):
    """Finds the first operation that makes no number of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Stack = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = not self.made and _holds_none((args, kwargs))
        out = func(*args, **(kwargs or {}))
        # memory that nobody has written to may hold anything
        if not (self.made or given) and "empty" not in func._schema.name and _holds_none(out):
            self.made = stack()
        return out


def not_a_number(run: Run, again: Callable[[], Run | None]) -> list[Fact]:
    """What is no number with the record and is one without; ``again`` runs the code on the same draws."""
    lost = [event for event in run.releases.events if _holds_none(event.difference)]
    if not lost:
        return []
    with _First() as first:
        again()
    names = holding(run, lost)
    stacks = {"made": first.made, "origin": lost[0].origin}
    return [Fact(kind="too_little_noise", stacks=stacks, words={"lost": together(names) if names else "the sum"})]


def _holds_none(parts: Any) -> bool:
    """Whether a tensor among them holds what is no number."""
    tensors = tensors_among(parts)
    return any(bool(part.isnan().any()) for part in tensors if part.is_floating_point())
