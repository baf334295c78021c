"""Where a library has functions for batches, clipping and noise, the line that is named first is the wrong call's."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import pytest
from diagnosis import helped
from diagnosis.helped import CLIP, NOISE

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain
from audit.diagnosis.explain.findings import NOTHING_STATED

KEY = jax.random.key(3)


def told(step, **stated):
    return explain(step, helped.pair(), key=KEY, **(stated or {"clip": CLIP, "noise_multiplier": NOISE}))


def only(step):
    """The one finding, with the lines of this file that it names."""
    (found,) = told(step).findings
    return found, [line for path, line in found.lines if path == helped.__file__]


def marked(function):
    lines, start = inspect.getsourcelines(function)
    (own,) = [start + offset for offset, line in enumerate(lines) if "# BUG" in line]
    return own


def test_nothing_is_said_about_the_right_call():
    explanation = told(helped.right)
    assert explanation.findings == ()
    assert explanation.rounds[0].multiplier == pytest.approx(NOISE, rel=0.02)


@pytest.mark.few(1)
@pytest.mark.parametrize("step", [helped.noise_by_the_drawn_batch, helped.noise_by_the_number_of_records])
def test_noise_scaled_by_records_is_named_where_the_scale_is_computed(step):
    found = told(step).findings[0]
    lines = [line for path, line in found.lines if path == helped.__file__]
    assert found.kind == Kind.NOISE_SCALE_FROM_DATA
    assert lines[0] == marked(step), found
    assert found.says.count("helped.py:") == len(set(found.says.split("helped.py:"))) - 1, found.says


def test_leaves_that_the_clipping_leaves_out_are_named_with_its_line():
    found, lines = only(helped.biases_not_clipped)
    assert found.kind == Kind.NOT_CLIPPED
    assert lines[0] == marked(helped.clip_kernels), found
    assert "['hidden']['bias']" in found.says
    assert "['last']['bias']" in found.says
    assert "kernel" not in found.says


def test_leaves_without_noise_are_named_with_the_line_that_adds_it_to_another():
    found, lines = only(helped.first_leaf_only)
    assert found.kind == Kind.RELEASED_WITHOUT_NOISE
    assert lines[0] == marked(helped.noise_on_the_first)
    assert all(leaf in found.says for leaf in ("['hidden']['kernel']", "['last']['bias']", "['last']['kernel']"))
    assert "['hidden']['bias']" not in found.says
    assert "The output[" not in found.says


@pytest.mark.long
def test_what_one_step_releases_without_noise_is_all_that_is_said_of_the_next():
    (found,) = told(helped.first_leaf_only_twice).findings
    assert found.kind == Kind.RELEASED_WITHOUT_NOISE


@pytest.mark.few(1)
@pytest.mark.parametrize("step", [helped.rate_of_the_number_of_records, helped.rate_by_hand])
def test_a_rate_that_depends_on_the_number_of_records_is_found(step):
    found = told(step).findings[0]
    assert found.kind == Kind.RANDOMNESS_FROM_DATA
    assert "the number of records" in found.says
    line = marked(helped.rate_by_hand) if step is helped.rate_by_hand else marked_bernoulli()
    assert (helped.__file__, line) in found.lines


def marked_bernoulli():
    lines, start = inspect.getsourcelines(helped.poisson_batch)
    return start + next(offset for offset, line in enumerate(lines) if "bernoulli" in line)


def plain(key, data):
    """One column, clipped by itself: what is stated to a replay shows on the shortest program."""
    return jnp.clip(data[1], -CLIP, CLIP).sum() + NOISE * jax.random.normal(key)


def test_what_a_mechanism_was_told_is_stated_to_a_replay():
    step = mechanisms.mechanism(plain, clip=CLIP, noise_multiplier=2 * NOISE)
    claim = guarantees.epsilon_delta(epsilon=1.0, delta=1e-5)
    explanation = explain(step, helped.pair(), key=KEY, claim=claim)
    assert explanation.stated == 2 * NOISE
    assert [one.kind for one in explanation.findings] == [Kind.TOO_LITTLE_NOISE]


def test_an_event_states_its_noise_multiplier():
    accounting = pytest.importorskip("dp_accounting")
    event = accounting.PoissonSampledDpEvent(0.5, accounting.GaussianDpEvent(1.0))
    claim = guarantees.claim_from_event(accounting.SelfComposedDpEvent(event, 1), spacing=0.01)
    explanation = told(plain, claim=claim)
    assert explanation.stated == 1.0
    assert NOTHING_STATED not in str(explanation)
