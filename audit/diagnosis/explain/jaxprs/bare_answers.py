"""Answers by coins of which some come often from one dataset and never from the other: data are released with them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from audit.diagnosis.explain.dispatch import RISK, Stated
from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs.equations import CALLBACKS
from audit.diagnosis.explain.jaxprs.joint_law import FAST, MOST_WORK, TOGETHER, work
from audit.diagnosis.explain.jaxprs.runs import Program, Run
from audit.diagnosis.explain.places import frames_of, spelled
from audit.trials.jaxprs import holds
from audit.trials.threefry import fold_in
from guarantees.numerics.rounding import at_least
from mechanisms.release import is_key

KEY = 5000
"""Folded into the key of the first runs for those of this look."""
MOST_DRAWN, FEWEST_DRAWN = 2**17, 2**10
MOST_EPSILON = 8.0
"""Of answers about which nobody claims anything."""
DELTA = 1e-4
"""Of the claim: answers that come less often may come from one dataset alone."""


def on_one_side(program: Program, key: jax.Array, run: Run, stated: Stated) -> list[Finding]:
    """That an answer comes often from one dataset and never from the other.

    With probability RISK at most this is said of code that keeps the claim, or that costs MOST_EPSILON without one. Not
    asked where batches or Gaussian noise are promised.
    """
    places = [out.at for _, out in run.outs if out.blurred and out.at is not None]
    if not places or program.counts[0] != program.counts[1]:
        # how many answers there are may be public
        return []
    if stated.rate is not None or stated.noise_multiplier is not None:
        return []
    most = MOST_EPSILON if stated.of_answers is None else stated.of_answers
    sides = _drawn(program, key)
    for own, other, where in [] if sides is None else [(*sides, "without"), (*sides[::-1], "with")]:
        runs, unlikely = own.shape[1], math.log(4 * own.size / RISK)
        for one, another in zip(own, other, strict=True):
            values, counts = np.unique(one, return_counts=True)
            often = counts / runs - math.sqrt(unlikely / (2 * runs)) - DELTA
            alone = np.isfinite(values) & ~np.isin(values, another) & (often * runs * math.exp(-most) > unlikely)
            if alone.any():
                number = int(np.argmax(np.where(alone, counts, 0)))
                says = (
                    f"A number that {spelled(places[0])} releases is {values[number]:.6g} in {counts[number]:,} of "
                    f"{runs:,} runs {where} the record, and in none of as many on the other side: no random choice of "
                    f"an epsilon up to {at_least(most)} covers that."
                )
                return [Finding(kind=Kind.RELEASED_WITHOUT_NOISE, lines=frames_of(places[:1]), says=says)]
    return []


def _drawn(program: Program, key: jax.Array) -> list[np.ndarray] | None:
    """What both datasets release, one row for each number of the output; None where that takes too long."""
    runs = min(MOST_DRAWN, int(MOST_WORK / 2 / max(1.0, work(program.b.jaxpr), program.numbers)))
    if runs < FEWEST_DRAWN or holds(program.b.jaxpr, CALLBACKS):
        return None

    def one(key: jax.Array, side: Any) -> jax.Array:
        leaves = jax.tree.leaves(program.function(key, side))
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in leaves if not is_key(leaf)])

    keys, found = jax.random.split(fold_in(key, KEY), runs), []
    try:
        for side in program.sides:
            data = jax.tree.map(jnp.asarray, side)
            mapped = jax.jit(
                lambda own, data=data: jax.lax.map(lambda key: one(key, data), own, batch_size=TOGETHER),
                compiler_options=FAST,
            )
            found.append(np.asarray(mapped(keys)).T)
    except Exception:
        # nobody promised that the code can be mapped over keys
        return None
    return found
