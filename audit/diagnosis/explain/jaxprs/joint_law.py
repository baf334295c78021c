"""Which records are in the first batch together, over many keys: Poisson batches take each by a coin of its own.

A record that changes what is released is in the batch. Others of the batch may be hidden, by what is drawn for all
records or by what is done to the release. So only batches that hold too many of some records too often tell something:
of n records at least k with a probability of more than P(Bin(n, rate) >= k), which hiding some only lowers.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from audit.diagnosis.explain.dispatch import RISK, Stated
from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.jaxprs.equations import CALLBACKS
from audit.diagnosis.explain.jaxprs.runs import Program, Run, run_once
from audit.diagnosis.explain.jaxprs.sampled_batches import moves_the_first_round
from audit.diagnosis.explain.other_batches import not_poisson
from audit.diagnosis.explain.places import NOWHERE, Place
from audit.trials.jaxprs import holds, inside_of
from audit.trials.threefry import fold_in
from guarantees.numerics.distributions import binom
from mechanisms.adapters.joining_rate import LARGEST_UNIFORM, SLACK
from mechanisms.release import is_key

KEY = 4000
"""Folded into the key of the first runs for the keys of this look."""
MOST_KEYS, FEWEST_KEYS = 1024, 128
TOGETHER = 256
"""Keys that are mapped at once."""
MOST_RECORDS = 8
MOST_WORK = 2**29
"""Numbers that are computed at most: fewer keys are drawn of longer programs."""
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compiling takes most of the time."""
LEAST_CHANGE = 1e-5
"""Of the largest number of the output, below which a change is rounding."""
WHOLE = 0.99
"""Share of a record's largest change from which on it counts as whole."""
UNSURE = 1e-3
"""Chance below which records may join more often than at the claim's rate."""


@dataclasses.dataclass(frozen=True)
class Law:
    """For each key and each record that is ever seen, whether the run shows that the record is in the first batch."""

    taken: np.ndarray
    whole: np.ndarray
    """Whether it is in it with its largest weight: a mean over several coins takes parts of records."""
    own: bool
    """Whether the differing record is among them, as the first."""


def not_drawn_one_by_one(program: Program, key: jax.Array, runs: Sequence[Run], stated: Stated) -> list[Finding]:
    """That the records of the first batch are not each taken by a coin of their own at the claim's rate.

    With probability RISK at most this is said of Poisson batches of that rate, or of a lower one.
    """
    rate = stated.rate
    several = program.rounds == 1 < stated.steps
    if rate is None or rate * (1 + SLACK) >= 1 or several or not program.can_be_scaled:
        return []
    if runs[-1].lockstep.constant_choice is not None or _has_its_own_number(program, key, rate):
        return []
    law = _law(program, key)
    said = None if law is None else _unlike(law, rate)
    if said is None:
        return []
    what, filled = said
    return [not_poisson(batch=what, draw=_drawn_at(runs, last=filled), rate=rate)]


def _has_its_own_number(program: Program, key: jax.Array, rate: float) -> bool:
    """Whether one number of its own decides whether the record joins, whatever those of the others are."""
    tried = list(itertools.product((rate / 2, rate * (1 + SLACK)), (0.0, LARGEST_UNIFORM)))
    for seats in (False, True):
        lowest = run_once(program, key, first_round=True, share=0.0, seats=seats)
        forced, low = lowest.lockstep.forced, moves_the_first_round(program, lowest)
        if forced is None or not forced.draws:
            continue
        own = [share if low else LARGEST_UNIFORM - share for share, _ in tried]
        runs = (
            run_once(program, key, first_round=True, share=share, seats=seats, rest=rest)
            for share, (_, rest) in zip(own, tried, strict=True)
        )
        joins = (moves_the_first_round(program, run) for run in runs)
        return len(forced.draws) == 1 and all(
            one is (share < rate) for one, (share, _) in zip(joins, tried, strict=True)
        )
    return False


def _law(program: Program, key: jax.Array) -> Law | None:
    """Draw it: a record is shown to be in the batch if another one in its place changes what is released first."""
    if holds(program.b.jaxpr, CALLBACKS):
        return None
    records = program.counts[1]
    own = range(records)[program.index] if program.counts[0] == records else records - 1
    columns = [own, *(number for number in range(records) if number != own)][:MOST_RECORDS]
    keys = int(min(MOST_KEYS, MOST_WORK / (1 + len(columns)) / max(1.0, work(program.b.jaxpr))))
    if keys < FEWEST_KEYS:
        return None
    side = jax.tree.map(jnp.asarray, program.sides[1])

    def first(key: jax.Array, data: Any) -> jax.Array:
        leaves = jax.tree.leaves(program.function(key, data))
        rows = [leaf[0] if program.rounds > 1 else leaf for leaf in leaves if not is_key(leaf)]
        return jnp.concatenate([jnp.ravel(row).astype(jnp.float32) for row in rows])

    def replaced(number: jax.Array) -> Any:
        def other(column: jax.Array) -> jax.Array:
            floating = not is_key(column) and jnp.issubdtype(column.dtype, jnp.floating)
            return column.at[number].set(-column[number] - 1) if floating else column

        return jax.tree.map(other, side)

    def changed(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        # no record has the last number: nothing is replaced
        outs = jax.vmap(lambda number: first(key, replaced(number)))(jnp.asarray([*columns, records]))
        return jnp.max(jnp.abs(outs[:-1] - outs[-1]), axis=1), jnp.max(jnp.abs(outs[-1]))

    drawn = jax.random.split(fold_in(key, KEY), keys)
    mapped = jax.jit(lambda own: jax.lax.map(changed, own, batch_size=TOGETHER), compiler_options=FAST)
    try:
        by, size = (np.asarray(one) for one in mapped(drawn))
    except Exception:
        # nobody promised that the code can be mapped over keys
        return None
    taken: np.ndarray = np.greater(by, LEAST_CHANGE * size[:, None])
    whole = taken & (by >= WHOLE * by.max(axis=0))
    seen = np.flatnonzero(taken.any(axis=0))
    return Law(taken[:, seen], whole[:, seen], seen[0] == 0) if seen.size else None


def work(jaxpr: Any) -> float:
    """Numbers that a program computes."""
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "while":
            return math.inf
        total += sum(getattr(variable.aval, "size", 1) for variable in equation.outvars)
        inner = [getattr(part, "jaxpr", part) for part in inside_of(equation)]
        total += equation.params.get("length", 1) * sum(map(work, inner))
    return total


def _unlike(law: Law, rate: float) -> tuple[str, bool] | None:
    """What Poisson batches would hardly ever show, and whether that is that hardly any batch is empty."""
    keys, records = law.taken.shape
    most = rate * (1 + SLACK)
    # a record that joins more often than claimed with a part of its weight counts where it is whole
    often = binom.sf(law.taken.sum(axis=0) - 1, keys, most) * records <= UNSURE
    held = np.where(often, law.whole, law.taken)
    some = [*itertools.combinations(range(records), 2), tuple(range(records))] if records > 1 else []
    groups = dict.fromkeys([*((number,) for number in range(records)), *some])
    tests = [(group, least) for group in groups for least in range(1, 1 + len(group))]
    runs = [int(np.sum(held[:, group].sum(axis=1) >= least)) for group, least in tests]
    chances = [
        binom.sf(own - 1, keys, binom.sf(k - 1, len(group), most)) for own, (group, k) in zip(runs, tests, strict=True)
    ]
    telling = [number for number, chance in enumerate(chances) if chance * len(tests) <= RISK]
    if not telling:
        return None

    def rank(number: int) -> tuple[Any, ...]:
        # a record by itself tells more than several, and the differing one most
        group, least = tests[number]
        return len(group) > 1, not law.own or group != (0,), chances[number], -least

    number = min(telling, key=rank)
    group, least = tests[number]
    how_often = f"in all {keys:,} runs" if runs[number] == keys else f"in at least {runs[number]:,} of {keys:,} runs"
    if len(group) == 1:
        return f"The first batch holds {'the' if law.own and group == (0,) else 'a'} record {how_often}", False
    whom = {1: "at least one", len(group): "both" if len(group) == 2 else "all"}.get(least, f"at least {least}")
    alone = f"where a coin for each would give about {keys * binom.sf(least - 1, len(group), rate):,.0f}"
    return f"The first batch holds {whom} of {len(group)} records {how_often}, {alone}", least == 1


def _drawn_at(runs: Sequence[Run], *, last: bool) -> Place:
    """Where the first batch is drawn; with ``last`` where the choice is made."""
    for lockstep in (run.lockstep for run in runs):
        chosen = [one.at for one in lockstep.choices.first if one.a.dtype == jnp.bool_ and one.at is not None]
        if last and chosen:
            return chosen[-1]
        numbers = [number for release in lockstep.meetings.releases[:1] for number in release.choosing]
        draws = [lockstep.keys.draws[number] for number in sorted(numbers)]
        if draws:
            return next((draw for draw in draws if draw.chooses), draws[0]).at
    return NOWHERE
