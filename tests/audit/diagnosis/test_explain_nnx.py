"""A training in Flax nnx is followed to the lines of its model's user."""

from __future__ import annotations

import functools
import inspect

import jax
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import Kind, explain

pytest.importorskip("flax")

from diagnosis import nnx_steps as steps

FAULTS = {
    "largest": Kind.RECORDS_MIXED_BEFORE_SUM,
    "one key": Kind.KEY_USED_TWICE,
    "batch": Kind.NOISE_SCALE_FROM_DATA,
    "mean": Kind.CHANGED_AFTER_RELEASE,
}


def told(run, bug):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(9, 4)).astype(np.float32), random.normal(size=9).astype(np.float32)
    x[-1], y[-1] = 5 * x[-1], 20.0
    pair = mechanisms.pair((x[:-1], y[:-1]), (x, y), relation="add_remove")
    own = functools.partial(run, bug=bug)
    return explain(own, pair, key=jax.random.key(1), clip=steps.CLIP, noise_multiplier=steps.SIGMA)


@pytest.mark.long
@pytest.mark.parametrize("run", [steps.step, steps.training])
def test_the_right_one_is_left_alone(run):
    explanation = told(run, None)
    assert explanation.findings == ()
    assert [one.multiplier for one in explanation.rounds] == pytest.approx(
        [steps.SIGMA] * len(explanation.rounds), rel=1e-3
    )


@pytest.mark.long
@pytest.mark.parametrize("run", [steps.step, steps.training])
@pytest.mark.parametrize("bug", FAULTS)
def test_a_fault_is_found_at_its_line(run, bug):
    (found,) = told(run, bug).findings
    lines, start = inspect.getsourcelines(steps.private_gradient)
    (line,) = [start + offset for offset, text in enumerate(lines) if f"# BUG {bug}" in text]
    assert (found.kind, found.lines[0]) == (FAULTS[bug], (steps.__file__, line))
