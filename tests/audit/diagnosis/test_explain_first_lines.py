"""Where right helpers are called in a wrong way, the line that stands first is the wrong call's."""

from __future__ import annotations

import inspect
import linecache

import jax
import jax.numpy as jnp
import pytest
from diagnosis import first_lines

import guarantees
import mechanisms
from audit.diagnosis.explain import explain

KINDS = {
    "layers": "too_little_noise",
    "flat_layers": "too_little_noise",
    "two_calls": "too_little_noise",
    "median": "records_mixed_before_sum",
    "momentum": "too_little_noise",
    "rate": "changed_after_release",
}
TRAININGS = ("momentum", "rate", "right training")


def told(bug):
    made = first_lines.training if bug in TRAININGS else first_lines.step
    return explain(made(bug), first_lines.pair(), key=jax.random.key(0))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=pytest.mark.long) if bug == "momentum" else bug for bug in KINDS]
)
def test_the_wrong_call_stands_first(bug):
    found = told(bug).findings[0]
    assert found.kind == KINDS[bug]
    assert found.lines[0] == first_lines.wrong_line("layers" if bug == "flat_layers" else bug), found
    assert f"first_lines.py:{found.lines[0][1]}" in found.says


@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["right", "right training", "shares"])
def test_nothing_is_said_about_right_calls(form):
    assert told(form).findings == ()


def over(key, total, divisor):
    return (total + jax.random.normal(key, total.shape)) / divisor


def halved(key, total, deviation):
    return total + deviation / 2 * jax.random.normal(key, total.shape)


class Noise:
    """With a multiplier that ``share`` reads by way of a property, and ``draw`` does not read."""

    def __init__(self, key, total, number):
        self.key, self.total, self.multiplier, self.bound = key, total, number, 1.0
        self.rate = number / 8  # equal to a wrong deviation, and never read

    @property
    def deviation(self):
        return self.multiplier * self.bound

    def draw(self):
        return jax.random.normal(self.key, self.total.shape)

    def share(self):
        return self.total + self.deviation / 8 * self.draw()

    @property
    def quarter(self):
        return self.multiplier * self.bound / 4

    def less(self):
        return self.total + self.quarter * self.draw()


@pytest.mark.parametrize(
    ("noisy", "given"),
    [
        (over, False),
        (halved, True),
        (lambda *own: own[1] + Noise(*own).draw(), False),
        (lambda *own: Noise(*own).share(), True),
    ],
)
def test_only_a_number_that_is_read_as_a_deviation_is_called_one(noisy, given):
    def step(key, rows):
        kept = 4.0 * rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        return noisy(key, kept.sum(0), 4.0)

    pair = mechanisms.worst_case_pair(records=4, dimension=6, clip=3.0)
    (found,) = explain(step, pair, key=jax.random.key(0), claim=guarantees.gaussian(mu=1.0)).findings
    assert ("the deviation should be 4." in found.says) is given, found.says


def test_the_line_that_returns_a_wrong_deviation_stands_first():
    def step(key, rows):
        return Noise(key, (rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1.0)).sum(0), 1.0).less()

    pair = mechanisms.worst_case_pair(records=4, dimension=6, clip=3.0)
    (found,) = explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).findings
    assert linecache.getline(*found.lines[0]).strip() == "return self.multiplier * self.bound / 4"
    place = f"test_explain_first_lines.py:{found.lines[0][1]}"
    assert found.heading == f"too_little_noise at {place}"
    assert f"{place}  return self.multiplier * self.bound / 4\n" in str(
        explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    )


def clipped(rows):
    return rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=-1, keepdims=True))


def average_of_raw_sums(key, rows):
    average, weights, out = jnp.zeros(6), jnp.zeros(6), []
    for own in jax.random.split(key, 2):
        total = clipped(rows).sum(0)
        average = 0.5 * average + 0.5 * total  # wrong
        weights = weights - 0.1 * (total + jax.random.normal(own, (6,)))
        out.append(jnp.concatenate([weights, average]))
    return jnp.stack(out)


def truncated(key, rows):
    noise = jax.random.truncated_normal(key, -1.0, 1.0, (6,))  # wrong
    return clipped(rows).sum(0) + noise


def views_that_are_clipped_one_by_one(key, rows):
    noise, views = jax.random.split(key)
    each = clipped(2 * rows[:, None] + 0.01 * jax.random.normal(views, (len(rows), 4, 6)))
    gradients = each.sum(1)  # wrong
    return gradients.sum(0) + jax.random.normal(noise, (6,))


WRONG = [(average_of_raw_sums, "transcript"), (truncated, "update"), (views_that_are_clipped_one_by_one, "update")]


@pytest.mark.parametrize(("step", "releases"), WRONG)
def test_the_line_that_goes_wrong_before_noise_is_added_stands_first(step, releases):
    pair = mechanisms.worst_case_pair(records=4, dimension=6, clip=1.0)
    made = mechanisms.mechanism(step, releases=releases, clip=1.0, noise_multiplier=1.0)
    (found,) = explain(made, pair, key=jax.random.key(0)).findings
    lines, start = inspect.getsourcelines(step)
    assert found.lines[0][1] == next(start + number for number, line in enumerate(lines) if "# wrong" in line), found
