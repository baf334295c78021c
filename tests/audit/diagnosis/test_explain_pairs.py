"""What is due depends on the pair: an exchanged record moves a sum by two clipping norms. Leaves clipped apart."""

import functools
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import explain
from audit.diagnosis.explain.dispatch import stated_by
from audit.diagnosis.explain.in_records import line_answers

KEY = jax.random.key(0)
ROWS = 3 * np.random.default_rng(0).normal(size=(5, 6)).astype("f4")
OTHER = np.concatenate([ROWS[:-1], -ROWS[-1:]])
ADDED = mechanisms.pair(ROWS[:-1], ROWS)
EXCHANGED = mechanisms.pair(ROWS, OTHER, relation="substitution")
CLAIMS = [
    (ADDED, guarantees.gaussian(mu=1.0)),
    (EXCHANGED, guarantees.gaussian(mu=2.0, relation="substitution")),
    (EXCHANGED, guarantees.subsampled_gaussian(rate=1.0, noise_multiplier=1.0, relation="substitution")),
]


def clipped(rows, bound=1.0):
    return rows / jnp.maximum(1, jnp.linalg.norm(rows, axis=1, keepdims=True) / bound)


def together(key, rows):
    return clipped(rows).sum(0) + jax.random.normal(key, (6,))


def apart(key, rows, bound=1.0):
    first, second = jax.random.split(key)
    weight, bias = clipped(rows[:, :4], bound).sum(0), clipped(rows[:, 4:], bound).sum(0)
    return {"w": weight + jax.random.normal(first, (4,)), "b": bias + jax.random.normal(second, (2,))}


def apart_with_smaller_bounds(key, rows):
    return apart(key, rows, 0.5**0.5)


def in_torch(seed, rows, *, parts=False, bound=1.0):
    import torch

    torch.manual_seed(seed)
    given = torch.tensor(np.asarray(rows))
    pieces = (given[:, :4], given[:, 4:]) if parts else (given,)
    sums = [(own / (own.norm(dim=1, keepdim=True) / bound).clamp(min=1.0)).sum(0) for own in pieces]
    return {str(number): own + torch.randn(len(own)) for number, own in enumerate(sums)}


def apart_in_torch(seed, rows):
    return in_torch(seed, rows, parts=True)


def apart_with_smaller_bounds_in_torch(seed, rows):
    return in_torch(seed, rows, parts=True, bound=0.5**0.5)


RIGHT = [together, in_torch, apart_with_smaller_bounds, apart_with_smaller_bounds_in_torch]


def explained(step, pair, claim, **told):
    torch_code = step.__name__.endswith("in_torch")
    if torch_code and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install dpsgd-audit[opacus]")
    made = mechanisms.callable_step(step, **told) if torch_code else mechanisms.mechanism(step, **told)
    return explain(made, pair, key=KEY, claim=claim).findings


@pytest.mark.few(3)
@pytest.mark.parametrize(("pair", "claim"), CLAIMS, ids=["added", "exchanged, mu", "exchanged, multiplier"])
@pytest.mark.parametrize(
    "step",
    [together, in_torch, apart_with_smaller_bounds, apart_with_smaller_bounds_in_torch],
    ids=lambda s: s.__name__,
)
def test_right_code_stays_silent_on_every_pair(step, pair, claim):
    assert not explained(step, pair, claim, clip=1.0, noise_multiplier=1.0)


@pytest.mark.few(4)
@pytest.mark.parametrize(("pair", "claim"), CLAIMS, ids=["added", "exchanged, mu", "exchanged, multiplier"])
@pytest.mark.parametrize("step", [apart, apart_in_torch], ids=lambda step: step.__name__)
def test_parts_that_are_clipped_by_themselves_are_named(step, pair, claim):
    (finding,) = explained(step, pair, claim, clip=1.0, noise_multiplier=1.0)
    assert finding.kind == "too_little_noise"
    each = 1 if pair is ADDED else 2
    assert f"by {each} in each of 2 parts, as if each were clipped on its own" in finding.says
    on_the_pair = "(0.5 on this pair, whose record may move it by 2 clipping norms)"
    assert (on_the_pair in finding.says) == (claim.name == "subsampled_gaussian")


@pytest.mark.parametrize("step", [together, in_torch], ids=lambda step: step.__name__)
def test_too_little_noise_in_code_that_clips_together_is_not_called_clipped_apart(step):
    (finding,) = explained(step, ADDED, guarantees.gaussian(mu=0.5), clip=1.0)
    assert "a noise multiplier of 1, but 2 is claimed" in finding.says
    assert "clipped on its own" not in finding.says


def test_after_a_violation_mu_is_due_on_the_pair_as_in_explain():
    """One record for another moves the sum by 2: mu 1 needs noise of deviation 2, and not of 1 for each bound."""
    rows = np.eye(3, dtype=np.float32)
    pair = mechanisms.pair(rows, rows * np.array([[1], [1], [-1]], np.float32), relation="substitution")
    claim = guarantees.gaussian(mu=1.0)

    def step(key, data):
        return clipped(data).sum(0) + 1.4 * jax.random.normal(key, (3,))

    (found,) = explain(step, pair, key=jax.random.key(0), claim=claim).findings
    stated = stated_by(claim, {}, pair)
    (answer,), _ = line_answers(mechanisms.mechanism(step), pair, key=jax.random.key(0), stated=stated)
    assert (answer.code, answer.says) == ("line:too_little_noise", found.says)


@pytest.mark.parametrize(("claimed", "told"), [(0.25, 1.0), (1.0, 0.25)])
def test_the_larger_of_what_is_claimed_and_told_is_stated(claimed, told):
    """Opacus's accountant reads the multiplier that the code has set: 'nothing found' where another one was told."""
    pair = mechanisms.worst_case_pair(records=3, dimension=2, clip=1.0)
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=claimed)
    assert stated_by(claim, {"noise_multiplier": told}, pair).noise_multiplier == 1.0
    of_the_pair = stated_by(guarantees.gaussian(mu=4.0), {"noise_multiplier": told}, pair)
    assert of_the_pair.noise_multiplier == 0.25


@pytest.mark.parametrize(("own", "claimed", "blamed"), [(1.0, 2.0, True), (1.5, 2.0, False), (2.0, 1.5, False)])
def test_a_claim_of_more_noise_than_the_mechanism_states_and_keeps_is_blamed_and_no_line(own, claimed, blamed):
    step = mechanisms.mechanism(together, clip=1.0, noise_multiplier=own)
    claim = guarantees.subsampled_gaussian(rate=1.0, noise_multiplier=claimed)
    stated = stated_by(claim, step.parameters, ADDED)
    (answer,), _ = line_answers(step, ADDED, key=KEY, stated=stated, brief=True)
    (finding,) = explain(step, ADDED, key=KEY, claim=claim).findings
    assert answer.says == finding.says
    assert finding.says.startswith("The mechanism states a noise multiplier of 1 and the code keeps it") is blamed
    assert bool(finding.lines) is not blamed


def rounds(key, rows):
    return jax.vmap(together, in_axes=(0, None))(jax.random.split(key, 3), rows)


def training(steps):
    return guarantees.poisson_training(rate=1.0, noise_multiplier=1.0, steps=steps)


@pytest.mark.parametrize(
    ("releases", "claim", "refusal"),
    [
        ("update", guarantees.gaussian(mu=1.0, relation="zero_out"), "for zero_out neighbours but the pair differs by"),
        ("update", training(3), "is about more than one step"),
        ("transcript", training(7), "counts 7 steps, and the training 'rounds' takes 3"),
        ("transcript", guarantees.subsampled_gaussian(rate=1.0, noise_multiplier=1.0), "counts 1 step, and the"),
    ],
)
def test_a_claim_about_something_else_is_refused_as_a_run_refuses_it(releases, claim, refusal):
    with pytest.raises(ValueError, match=refusal):
        explain(mechanisms.mechanism(rounds, releases=releases), ADDED, key=KEY, claim=claim)


def padded_when_odd(key, rows, bound=1.0):
    """One size of dataset has a constant in its program that the other has not."""
    total = clipped(rows, bound).sum(0) * jnp.asarray(np.ones(6, "f4"))
    if len(rows) % 2:
        total = total + jnp.asarray(np.zeros(6, "f4"))
    return total + jax.random.normal(key, (6,))


def in_a_program(key, rows, bound=1.0):
    return jax.jit(lambda key: padded_when_odd(key, rows, bound))(key)


def in_a_scan(key, rows, bound=1.0):
    return jax.lax.scan(lambda carry, own: (carry, padded_when_odd(own, rows, bound)), 0, key[None])[1]


def in_a_loop(key, rows, bound=1.0):
    def body(state):
        return state[0] + 1, padded_when_odd(jax.random.fold_in(key, state[0]), rows, bound)

    return jax.lax.while_loop(lambda state: state[0] < 1, body, (0, jnp.zeros(6)))[1]


def in_a_branch(key, rows, bound=1.0):
    first, second = jax.random.split(key)
    taken = jax.random.uniform(first) < 2
    return jax.lax.cond(taken, lambda: padded_when_odd(second, rows, bound), lambda: jax.random.normal(second, (6,)))


@pytest.mark.few(2)
@pytest.mark.parametrize("step", [padded_when_odd, in_a_program, in_a_scan, in_a_loop, in_a_branch])
def test_a_constant_that_one_side_alone_has_is_followed(step):
    for rows in (ROWS, ROWS[:-1]):
        pair = mechanisms.pair(rows[:-1], rows)
        told = explain(step, pair, key=KEY, noise_multiplier=1.0)
        assert not told.findings, told
    short = explain(functools.partial(step, bound=2.0), pair, key=KEY, noise_multiplier=1.0)
    assert [found.kind for found in short.findings] == ["too_little_noise"]
