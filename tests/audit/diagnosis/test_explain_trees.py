"""Helpers for pytrees that serve records, sums and noise alike: the wrong call of one stands first."""

from __future__ import annotations

import jax
import pytest
from diagnosis import trees_library

from audit.diagnosis.explain import explain
from audit.diagnosis.explain.jaxprs import equations

RIGHT = (
    "plain",
    "gated",
    "divided_by_its_own_length",
    "rounded_noise",
    "box_muller",
    "noise_in_the_loss",
    "chosen_by_what_is_released",
    "prefixes",
)
WRONG = {
    "wide_gate_step": "too_little_noise",
    "twice_the_limit": "too_little_noise",
    "largest_leaf_as_the_length": "too_little_noise",
    "all_records_bounded_together": "records_mixed_before_sum",
    "sum_doubled_by_the_helper": "too_little_noise",
    "divided_by_the_number_of_records": "changed_after_release",
    "raw_gradient_beside_the_clipped": "not_clipped",
    "noise_halved_by_the_helper": "too_little_noise",
    "deviation_of_a_closure": "too_little_noise",
    "noise_in_the_loss_halved": "too_little_noise",
    "one_key_handed_to_two_helpers": "key_used_twice",
    "first_round_without_noise": "released_without_noise",
    "first_round_muted": "released_without_noise",
    "padding_that_counts": "too_little_noise",
    "chosen_by_the_raw_loss": "not_followed",
    "deviation_chosen_by_raw_data": "not_followed",
}


def told(name):
    step = getattr(trees_library, name)
    return explain(step, trees_library.pair(), key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_said_about_right_code(name):
    explained = told(name)
    assert explained.suspicions == ()
    # too few numbers of an unknown law tell no deviation
    assert bool(explained.not_judged) == (name in ("rounded_noise", "box_muller"))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", WRONG)
def test_the_line_of_the_bug_stands_first_and_is_the_only_one(name):
    (found,) = told(name).findings
    assert found.kind == WRONG[name], found.says
    assert trees_library.wrong_line(name) in (found.lines if found.kind == "not_followed" else found.lines[:1]), found


def test_a_version_of_jax_that_keeps_lines_elsewhere_only_costs_the_line(monkeypatch):
    monkeypatch.setattr(equations, "KEPT", "jax._src.elsewhere")
    (found,) = told("wide_gate_step").findings
    assert found.kind == WRONG["wide_gate_step"]
    assert "by 2, more than the stated bound of 1" in found.says


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "untrue"),
    [
        ("twice_the_limit", "a number of its own"),
        ("sum_doubled_by_the_helper", "makes longer what trees_library.py:40"),
        ("noise_in_the_loss", "correlated"),
    ],
)
def test_no_sentence_says_what_is_not_so(name, untrue):
    assert untrue not in " ".join(found.says for found in told(name).findings)
