"""What a replay adds to the battery: every bug of the zoo at 1,000 outputs in all, found in k of n seeds.

python benchmarks/replayed_direction.py [--seeds 10] [--outputs 1000] [--first-seed 0] [--only NAME ...]

Outputs are those that are judged, those that members and thresholds are fitted on, and those of the replay. Each step
is audited as it is, where the rows of the data are gradients, and hidden: rows are multiplied by a fixed orthogonal
matrix before the step and the release by another one after it, as a network hides both. Right twins are audited alike.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from audit.policies.catalogue import default_policy
from audit.procedure import run_audit
from distinguishers.battery import default_battery
from distinguishers.learned.fitting import Fit
from guarantees.claim import Claim
from mechanisms.adapters.same_draws import MOST_RUNS
from mechanisms.contract import Mechanism, mechanism
from mechanisms.pairs.neighbours import Neighbours, materialise

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from zoo.faults import Fault, zoo

RISK = 0.05
FORMS = ("gradients", "hidden")


def judged(outputs: int, *, replay: bool) -> int:
    """The most trials that leave room for all others."""
    spent = outputs - (2 * MOST_RUNS if replay else 0)
    counts = (
        (trials, trials + Fit().fit_trials(trials) + default_policy(None, trials).fit_trials)
        for trials in range(2, spent, 2)
    )
    return max(trials for trials, total in counts if total <= spent)


def hidden(fault: Fault, step: Mechanism) -> tuple[Mechanism, Neighbours]:
    """The same release of records that are no gradients, in a basis that nobody knows."""
    pair = fault.neighbours
    sides = [np.asarray(materialise(side), np.float64) for side in (pair.without, pair.with_record)]
    dimension = sides[0].shape[1]
    rng = np.random.default_rng(dimension)
    first = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
    size = jax.eval_shape(step, jax.random.key(0), jnp.asarray(sides[0], jnp.float32)).size
    last = jnp.asarray(np.linalg.qr(rng.standard_normal((size, size)))[0], jnp.float32)
    back = jnp.asarray(first, jnp.float32)

    def behind(key: jax.Array, rows: jax.Array) -> jax.Array:
        gradients = jnp.matmul(rows[:, :-1], back, precision=jax.lax.Precision.HIGHEST)
        return jnp.matmul(jnp.ravel(step(key, gradients)), last, precision=jax.lax.Precision.HIGHEST)

    # one more column, so that rows cannot be taken for gradients
    rows = [np.pad(side @ first.T, ((0, 0), (0, 1))).astype(np.float32) for side in sides]
    return mechanism(behind), dataclasses.replace(
        pair, without=rows[0], with_record=rows[1], name="hidden", parameters={}
    )


def found(name: str, form: str, replay: bool, seeds: range, outputs: int, *, right: bool = False) -> int:
    """In how many seeds the verdict is a violation."""
    fault = next(fault for fault in zoo() if fault.name == name)
    step, pair = fault.right if right else fault.step, fault.neighbours
    if form == "hidden":
        step, pair = hidden(fault, step)
    return violations(step, pair, fault.claim, replay, seeds, outputs)


def violations(step: Mechanism, pair: Neighbours, claim: Claim, replay: bool, seeds: range, outputs: int) -> int:
    """Seeds in which an audit of so many outputs ends in a violation."""
    trials, found = judged(outputs, replay=replay), 0
    for seed in seeds:
        key = jax.random.fold_in(jax.random.key(24), seed)
        scores = default_battery(pair, mechanism=step, replay=replay)
        record = run_audit(step, pair, scores, claim=claim, trials=trials, risk=RISK, key=key, diagnose=False)
        spent = record.trials + record.fit_trials + (2 * MOST_RUNS if replay else 0)
        assert spent <= outputs, f"{spent} outputs"
        found += record.verdict == "violation"
    return found


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--outputs", type=int, default=1000)
    options.add_argument("--first-seed", type=int, default=0)
    options.add_argument("--only", nargs="*", default=())
    given = options.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    print("| bug | gradients: battery | replay | hidden: battery | replay | right twin, replay | hidden, replay |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for name in given.only or [fault.name for fault in zoo()]:
        row = [found(name, form, replay, seeds, given.outputs) for form in FORMS for replay in (False, True)]
        row += [found(name, form, True, seeds, given.outputs, right=True) for form in FORMS]
        print(f"| `{name}` | {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
