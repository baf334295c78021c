"""How soon each bug of the zoo is found, and how often its right twin is accused.

python benchmarks/zoo_table.py [--budget 60] [--only NAME ...] [--repetitions 200]

Every audit uses the default battery and an anytime-valid test at 95%: it may look after every trial. Thresholds come
from a pilot of 200 trials per side, which is discarded and counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from audit.bounds.betting import AnytimeTest, anytime_test, pilot_thresholds
from audit.trials import traced
from distinguishers import battery
from mechanisms.contract import Mechanism

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from zoo.faults import Fault, zoo

RISK = 0.05
PILOT = 200
THRESHOLDS = 10
FIRST_BLOCK = 32
LARGEST_BLOCK = 2**15
RUNS_AT_ONCE = 20

Scores = Callable[[int, int], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    verdict: str
    trials: int
    seconds: float
    member: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """Both sides of an audit, its thresholds fixed."""

    without: Scores
    with_record: Scores
    thresholds: np.ndarray
    members: tuple[str, ...]
    test: AnytimeTest

    def indicators(self, without: np.ndarray, with_record: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """False alarms and misses of every member at every threshold, shape (..., trials, tests)."""
        alarm = (without[..., None] > self.thresholds).reshape(*without.shape[:-1], -1)
        miss = (with_record[..., None] <= self.thresholds).reshape(*with_record.shape[:-1], -1)
        return alarm, miss


def prepare(fault: Fault, step: Mechanism, key: jax.Array) -> Prepared:
    distinguisher = battery(fault.neighbours)
    pair = fault.neighbours
    sides = [
        traced.compile_program(step, dataset, distinguisher, side=side, chunk=1024)
        for side, dataset in (("without", pair.without), ("with", pair.with_record))
    ]
    pilot_keys, keys = jax.random.split(key, (2, 2))
    pilot = [side.source(own).scores(0, PILOT) for side, own in zip(sides, pilot_keys, strict=True)]
    members = tuple(member.name for member in distinguisher.members)
    thresholds = np.stack([pilot_thresholds(pilot[0][:, m], pilot[1][:, m]) for m in range(len(members))])
    without, with_record = (side.source(own).scores for side, own in zip(sides, keys, strict=True))
    test = anytime_test(fault.claim, tests=thresholds.size, both_ways=True)
    return Prepared(without=without, with_record=with_record, thresholds=thresholds, members=members, test=test)


def detect(fault: Fault, step: Mechanism, key: jax.Array, *, budget: float) -> Found:
    began = time.monotonic()
    audit = prepare(fault, step, key)
    wealth, block = audit.test.start(), FIRST_BLOCK
    while not audit.test.rejected(wealth, RISK) and time.monotonic() - began < budget:
        start = wealth.trials
        alarm, miss = audit.indicators(audit.without(start, start + block), audit.with_record(start, start + block))
        wealth = audit.test.update(wealth, alarm, miss)
        block = min(2 * block, LARGEST_BLOCK)
    found = bool(audit.test.rejected(wealth, RISK))
    best = int(np.argmax(wealth.refit_log_wealth)) % audit.thresholds.size // THRESHOLDS
    return Found(
        verdict="violation" if found else "not found",
        trials=2 * (wealth.trials + PILOT),
        seconds=time.monotonic() - began,
        member=audit.members[best] if found else "",
    )


def false_alarms(fault: Fault, key: jax.Array, *, repetitions: int, trials: int) -> int:
    """How many of the audits of the right twin, looked at after every trial, say 'violation'."""
    audit = prepare(fault, fault.right, key)
    side, accused = trials // 2, 0
    for first in range(0, repetitions, RUNS_AT_ONCE):
        runs = min(RUNS_AT_ONCE, repetitions - first)

        def drawn(scores: Scores, first: int = first, runs: int = runs) -> np.ndarray:
            return scores(first * side, (first + runs) * side).reshape(runs, side, len(audit.members))

        alarm, miss = audit.indicators(drawn(audit.without), drawn(audit.with_record))
        wealth = audit.test.update(audit.test.start((runs,)), alarm, miss)
        accused += int(np.sum(audit.test.rejected(wealth, RISK)))
    return accused


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--budget", type=float, default=60.0)
    options.add_argument("--only", nargs="*")
    options.add_argument("--repetitions", type=int, default=200)
    options.add_argument("--trials", type=int, default=1000)
    given = options.parse_args()
    print("| bug | reference | verdict | by | trials | seconds | right twin accused |")
    print("|---|---|---|---|---|---|---|", flush=True)
    total = accused = 0
    for index, fault in enumerate(zoo()):
        if given.only and fault.name not in given.only:
            continue
        key = jax.random.fold_in(jax.random.key(2026), index)
        found = detect(fault, fault.step, key, budget=given.budget)
        alarms = false_alarms(fault, jax.random.fold_in(key, 1), repetitions=given.repetitions, trials=given.trials)
        total, accused = total + given.repetitions, accused + alarms
        seen = found.member or fault.seen_by
        cells = [fault.name, fault.reference, found.verdict, seen, f"{found.trials:,}", f"{found.seconds:.1f}"]
        print(f"| {' | '.join(cells)} | {alarms}/{given.repetitions} |", flush=True)
    print(f"\nRight implementations accused: {accused} of {total} audits of {given.trials} trials at risk {RISK}.")


if __name__ == "__main__":
    main()
