"""What a quick look first costs in power: bugs of the zoo, the same keys with and without it.

    python benchmarks/quick_power.py [BUG ...] [--runs 200] [--seconds 420]

The number of trials is the first of ``TRIALS`` at which an audit with the default battery finds the bug in half of a
few pilot runs under keys of their own: where nearly everything or nothing is found no power can be lost. Then every run
audits twice under one key, with the default battery at the whole risk and by ``quick_audit``. A row tells how many
found the bug, how many of them at the first look, and in how many runs only one of the two found it.
"""

import argparse
import sys
import time
from pathlib import Path

import jax

from audit.procedure import run_audit
from audit.quick import SHARE, quick_audit
from distinguishers.battery import default_battery

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from zoo import faults

BUGS = (
    "noise_below_target",
    "fixed_size_batch",
    "rate_of_the_loader",
    "clipped_per_layer",
    "divided_by_expected_batch",
    "divided_by_realised_batch",
)
TRIALS = (100, 200, 400, 800, 1600, 3200, 6400, 12_800)
PILOTS = 8
RISK = 0.05


def found(record):
    return record.verdict == "violation"


def full(fault, trials, key):
    """Audited with the default battery alone."""
    learner = default_battery(fault.neighbours, mechanism=fault.step)
    return run_audit(
        fault.step, fault.neighbours, learner, claim=fault.claim, trials=trials, risk=RISK, key=key, diagnose=False
    )


def quick(fault, trials, key):
    """Audited with a first look."""
    return quick_audit(
        fault.step, fault.neighbours, claim=fault.claim, trials=trials, risk=RISK, key=key, diagnose=False
    )


def chosen_trials(fault):
    """The first of ``TRIALS`` that finds the bug in half of the pilot runs."""
    for trials in TRIALS:
        if sum(found(full(fault, trials, jax.random.key(1_000_000 + i))) for i in range(PILOTS)) >= PILOTS / 2:
            return trials
    return TRIALS[-1]


def row(fault, *, runs, seconds):
    """One line of the table; fewer runs where time is up."""
    began, trials = time.monotonic(), chosen_trials(fault)
    tally = {"full": 0, "quick": 0, "first": 0, "lost": 0, "won": 0}
    done = 0
    for i in range(runs):
        if time.monotonic() - began > seconds:
            break
        key = jax.random.key(i)
        usual, looked = full(fault, trials, key), quick(fault, trials, key)
        a, b = found(usual), found(looked)
        tally["full"] += a
        tally["quick"] += b
        # the record states its own part of the risk
        tally["first"] += b and looked.risk < 2 * SHARE * RISK
        tally["lost"] += a and not b
        tally["won"] += b and not a
        done += 1
    return (
        f"| {fault.name} | {trials:,} | {done} | {tally['full']} | {tally['quick']} | {tally['first']} "
        f"| {tally['lost']} | {tally['won']} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bugs", nargs="*", default=BUGS, metavar="BUG", help=f"of the zoo: {', '.join(BUGS)}")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=420.0, help="for each bug")
    arguments = parser.parse_args()
    known = {fault.name: fault for fault in faults.zoo()}
    print("| bug | trials | runs | found | found quick | at the first look | lost | won |")
    print("|---" * 8 + "|")
    for name in arguments.bugs:
        print(row(known[name], runs=arguments.runs, seconds=arguments.seconds), flush=True)


if __name__ == "__main__":
    main()
