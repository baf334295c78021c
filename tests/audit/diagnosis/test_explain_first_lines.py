"""Where right helpers are called in a wrong way, the line that stands first is the wrong call's."""

from __future__ import annotations

import jax
import pytest
from diagnosis import first_lines

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


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=pytest.mark.long) if bug == "momentum" else bug for bug in KINDS]
)
def test_the_wrong_call_stands_first(bug):
    found = told(bug).findings[0]
    assert found.kind == KINDS[bug]
    assert found.lines[0] == first_lines.wrong_line("layers" if bug == "flat_layers" else bug), found
    assert f"first_lines.py:{found.lines[0][1]}" in found.says


@pytest.mark.parametrize("form", ["right", "right training", "shares"])
def test_nothing_is_said_about_right_calls(form):
    assert told(form).findings == ()
