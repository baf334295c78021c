"""What Python does between the lines that JAX sees, such as copying a key: its line stands first."""

from __future__ import annotations

import jax
import pytest
from diagnosis import handed_library, trees_library

import guarantees
from audit.diagnosis.explain import explain

RIGHT = (
    "sampled",
    "aliased",
    "shares",
    "public_rate",
    "class_weights",
    "leaf_shares",
    "momentum_of_noisy_sums",
)
WRONG = {
    "repeated_in_a_list": "key_used_twice",
    "copied_into_a_list": "key_used_twice",
    "copied_by_a_helper": "key_used_twice",
    "kept_twice": "key_used_twice",
    "two_names": "key_used_twice",
    "shares_of_one_key": "key_used_twice",
    "one_key_in_a_loop": "key_used_twice",
    "one_key_for_all_steps": "key_used_twice",
    "one_key_of_a_state": "key_used_twice",
    "rate_of_a_helper": "randomness_from_data",
    "rate_of_a_caller": "randomness_from_data",
    "mask_of_ones": "in_every_batch",
    "length_of_a_part": "not_clipped",
    "leaf_left_out": "not_clipped",
    "noise_after_momentum": "too_little_noise",
    "momentum_of_clean_sums": "too_little_noise",
    "noise_of_a_mean_too_small": "too_little_noise",
}
SAID = {
    "copied_by_a_helper": "copies the key",
    "shares_of_one_key": "hands over the same key each time",
    "one_key_for_all_steps": "copies the key",
    "one_key_of_a_state": "hands over the same key each time",
    "rate_of_a_helper": "compared with 0.5 for 4 records and 0.4 for 5 records",
    "mask_of_ones": "nothing random decides the mask or weight",
    "length_of_a_part": "gives it only a part",
    "noise_after_momentum": "puts that before the noise",
    "noise_of_a_mean_too_small": "The record moves the value computed from the sum at",
}


def told(name, **stated):
    step = getattr(handed_library, name)
    if name == "mask_of_ones":
        stated["claim"] = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0)
    return explain(step, trees_library.pair(), key=jax.random.key(0), noise_multiplier=1.0, **stated)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_said_about_right_code(name):
    assert told(name, clip=1.0).findings == ()


@pytest.mark.few(2)
@pytest.mark.parametrize("name", WRONG)
def test_the_line_of_the_bug_stands_first(name):
    found = told(name, clip=1.0).suspicions
    assert [one.kind for one in found] == [WRONG[name]], [one.says for one in found]
    assert found[0].lines[0] == handed_library.wrong_line(name), found[0]
    assert SAID.get(name, "") in found[0].says


def test_a_bound_that_the_code_is_given_serves_where_none_is_stated():
    step, pair = trees_library.twice_the_limit, trees_library.pair()
    (found,) = explain(step, pair, key=jax.random.key(0), noise_multiplier=1.0).findings
    assert "more than the code's own bound of 1" in found.says
    assert found.lines[0] == trees_library.wrong_line("twice_the_limit")
