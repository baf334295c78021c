"""Laplace noise beside the epsilon that is claimed for one number: its scale is judged where nothing hides it."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compilations

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain

AGES = mechanisms.add_record(np.array([3.0, 8.0, 1.0, 9.0], "f4"), 10.0)
GROUPS = mechanisms.add_record(np.array([1, 0, 2, 2, 0]), 3)
MOVED = mechanisms.replace_record(np.array([1, 0, 2, 2, 0]), 0, 3)


def laplace(key, like=(), own=0):
    return jax.random.laplace(jax.random.fold_in(key, own), like)


def total(ages):
    return jnp.clip(ages, 0, 10).sum()


def counts(groups, bins=5):
    return jnp.bincount(groups, length=bins)


def noisy(key, value, scale):
    return value + scale * laplace(key)


def handed(key, ages, epsilon=1.0, bound=10.0):
    return noisy(key, total(ages), bound / epsilon / 2)


def is_taken(key, like, rate):
    return jax.random.uniform(jax.random.fold_in(key, 1), like.shape) < rate


def explained(step, pair, seed=0):
    claim = guarantees.laplace(epsilon=1.0, relation=pair.relation)
    return explain(step, pair, key=jax.random.key(seed), claim=claim)


WRONG = {
    "sum": (lambda key, ages: total(ages) + 5 * laplace(key), AGES, 5, 2),
    "histogram": (lambda key, groups: counts(groups) + 0.5 * laplace(key, 5), GROUPS, 0.5, 2),
    "exchanged": (lambda key, groups: counts(groups) + 0.9 * laplace(key, 5), MOVED, 0.9, 1.111),
    "divided": (lambda key, ages: {"mean": (total(ages) + 5 * laplace(key)) / 5}, AGES, 5, 2),
    "handed over": (handed, AGES, 5, 2),
}


@pytest.mark.parametrize("step", WRONG)
def test_a_scale_that_is_too_small_is_named(step):
    code, pair, scale, epsilon = WRONG[step]
    told = explained(code, pair)
    (found,) = told.suspicions
    assert found.kind == Kind.TOO_LITTLE_NOISE
    assert f"has scale {scale:g}: epsilon {epsilon:g}, but the claim allows 1" in found.says
    lines, first = inspect.getsourcelines(code)
    assert first <= found.lines[0][1] < first + len(lines)
    assert "trials judge whether the noise" not in str(told)


RIGHT = {
    "sum": (lambda key, ages: total(ages) + 10 * laplace(key), AGES),
    "histogram": (lambda key, groups: counts(groups) + laplace(key, 5), GROUPS),
    "exchanged": (lambda key, groups: counts(groups) + 2 * laplace(key, 5), MOVED),
    "more noise later": (lambda key, ages: total(ages) + laplace(key) + 12 * laplace(key, own=1), AGES),
    "rounded before": (lambda key, ages: jnp.round(total(ages) + laplace(key)) + 12 * laplace(key, own=1), AGES),
    "sum of parts": (lambda key, groups: (counts(groups, 40) + 0.5 * laplace(key, 40)).sum(), GROUPS),
    "running sum": (lambda key, groups: jnp.cumsum(counts(groups, 40) + 0.5 * laplace(key, 40))[-1], GROUPS),
    "largest part": (lambda key, groups: (counts(groups, 40) + 0.5 * laplace(key, 40)).max(), GROUPS),
    "squares": (lambda key, groups: jnp.square(counts(groups, 40) + 0.5 * laplace(key, 40)).sum(), GROUPS),
    "product": (lambda key, groups: (lambda noisy: noisy @ noisy)(counts(groups) + 0.5 * laplace(key, 5)), GROUPS),
    "sampled": (lambda key, ages: total(is_taken(key, ages, 0.1) * ages) + 5 * laplace(key), AGES),
    "answers": (lambda key, groups: ((groups > 1) ^ is_taken(key, groups, 0.3)).sum() + 0.5 * laplace(key), MOVED),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("step", RIGHT)
def test_right_or_hidden_noise_is_not_accused(step):
    code, pair = RIGHT[step]
    assert not [found for seed in range(2) for found in explained(code, pair, seed).suspicions]


TABLES = {
    "one scale": (lambda key, groups: counts(groups) + 2 * laplace(key, 5), MOVED, "2  2  1"),
    "several": (
        lambda key, ages: {"sum": total(ages) + 20 * laplace(key), "count": ages.size + 2 * laplace(key, own=1)},
        AGES,
        "11  2 to 20  1",
    ),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_table_states_the_sensitivity_and_the_scale_that_epsilon_is_made_of(table):
    """It stated the L2 sensitivity and a deviation along the record: 1.414 and 2.828 beside epsilon 1."""
    code, pair, row = TABLES[table]
    lines = [line for line in str(explained(code, pair)).splitlines() if line.startswith("  ")]
    heads = lines.index("  round  L1 sensitivity  Laplace scale     epsilon")
    assert lines[heads + 1].split() == ["1", *row.split()]


def tree(scale):
    def step(key, groups):
        leaves = counts(groups, 4)
        levels = [leaves, leaves.reshape(2, 2).sum(1), leaves.sum()[None]]
        return [level + scale * laplace(key, level.shape, own) for own, level in enumerate(levels)]

    return step


def test_laplace_noise_on_several_numbers_is_compared_in_all_or_not_judged():
    enough, little = explained(tree(3.0), GROUPS), explained(tree(1.0), GROUPS)
    assert not enough.findings
    assert "was compared with the claim's epsilon of 1" in str(enough)
    (told,) = little.findings
    assert told.kind == Kind.NOT_FOLLOWED
    assert "costs up to epsilon 3 in all, and the claim allows 1" in told.says
    assert "Nothing found" not in str(little)


@pytest.mark.long
def test_noise_made_of_gamma_numbers_is_compiled_once_for_all_runs():
    """It was compiled 24 times, which took half a minute."""

    def step(key, ages):
        first, second = (jax.random.gamma(jax.random.fold_in(key, own), 1.0) for own in range(2))
        return total(ages) + 10 * (first - second)

    with compilations() as counted:
        told = explained(step, AGES)
    assert not told.suspicions
    assert sum(name in ("bind", "scan") for name in counted.names) <= 2, counted.names
