"""Twelve trainings as different people write them, each right as written and with one well-known bug."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import explain

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from diagnosis import hands_jax, hands_torch, hands_torch_steps, hands_torch_wrong  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

X, Y = (np.random.default_rng(3).normal(size=size).astype("f4") for size in ((10, hands_jax.D), 10))
X[-1] *= 3
Y[-1] = 6
SIDES = [(X[:count], Y[:count]) for count in (9, 10)]
AT_ITS_LINE = {
    hands_jax: ("two", "three", "four", "five", "six"),
    hands_torch: ("one", "two", "three", "four", "five", "six"),
}
CASES = [(module, name) for module in AT_ITS_LINE for name in module.ALL]


def told(module, name, bug, **stated):
    step = module.ALL[name](bug)
    if module is hands_jax:
        sides = [{"x": x, "y": y} for x, y in SIDES]
        return explain(step, mechanisms.pair(*sides), key=jax.random.key(0), **stated)
    sides = [tuple(map(torch.tensor, side)) for side in SIDES]
    if name == "five":
        step = mechanisms.callable_step(step)
    else:
        step, sides = mechanisms.torch_training(step, releases="final"), [TensorDataset(*side) for side in sides]
    pair = mechanisms.Neighbours(without=sides[0], with_record=sides[1], relation="add_remove")
    return explain(step, pair, key=jax.random.key(0), **stated)


def stated(name, module):
    clip = hands_jax.C6 if (module, name) == (hands_jax, "six") else 1.0
    return {"clip": clip, "noise_multiplier": module.S}


@pytest.mark.long
@pytest.mark.parametrize(("module", "name"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_right_trainings_are_left_alone(module, name):
    assert not told(module, name, False).findings
    assert not told(module, name, False, **stated(name, module)).findings


@pytest.mark.long
@pytest.mark.parametrize(("module", "name"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_a_bug_is_found_and_its_line_is_named(module, name):
    explanation = told(module, name, True, **stated(name, module))
    if name not in AT_ITS_LINE[module]:
        # a leaf is named where the others get their noise
        assert [one.kind for one in explanation.findings] == ["released_without_noise"]
        return
    found = explanation.suspicions[0]
    with open(module.__file__) as file:
        source = file.read().splitlines()
    assert any("# BUG" in source[line - 1] for path, line in found.lines if path == module.__file__), found


def told_of_step(train):
    sides = [TensorDataset(*map(torch.tensor, side)) for side in SIDES]
    pair = mechanisms.Neighbours(without=sides[0], with_record=sides[1], relation="add_remove")
    training = mechanisms.torch_training(train, releases="final")
    return explain(training, pair, key=jax.random.key(0), noise_multiplier=hands_torch_steps.S)


@pytest.mark.long
@pytest.mark.parametrize("name", hands_torch_steps.RIGHT)
def test_right_steps_of_other_hands_are_left_alone(name):
    assert not told_of_step(hands_torch_steps.RIGHT[name]).findings


ELSEWHERE = {
    "w_padded_without_mask": "too_little_noise",
    "w_noise_not_on_bias": "released_without_noise",
    "w_noise_on_copy": "released_without_noise",
    "w_last_step_bare": "released_without_noise",
    "w_bias_not_in_norm": "too_little_noise",
    "w_squared_norm": "not_clipped",
    "w_max_for_min": "not_clipped",
    "w_residual_kept": "not_clipped",
    "w_mean_loss_rows": "records_mixed_before_sum",
    "w_tenth_of_noise_on_head": "too_little_noise",
    "w_noise_abs": "not_followed",
}
"""Whose own line is not named, or only what it leads to."""


@pytest.mark.long
@pytest.mark.parametrize("name", hands_torch_wrong.WRONG)
def test_a_bug_of_other_hands_is_found(name):
    train = hands_torch_wrong.WRONG[name]
    found = told_of_step(train).findings[0]
    if name in ELSEWHERE:
        assert found.kind == ELSEWHERE[name]
        return
    source, start = inspect.getsourcelines(train.step)
    line = start + next(number for number, text in enumerate(source) if "# BUG" in text)
    assert (hands_torch_wrong.__file__, line) in found.lines, found
