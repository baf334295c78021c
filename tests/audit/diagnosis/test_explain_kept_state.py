"""Keys, counters and coins that objects keep: the line that takes them wrongly stands first."""

from __future__ import annotations

import jax
import pytest
from diagnosis import kept_state, trees_library

import guarantees
import mechanisms
from audit.diagnosis.explain import explain

RIGHT = ("all_draws", "renewed", "counting", "waiting", "below")
WRONG = {
    "one_draw": ("sampled_otherwise", "chooses the batches of 3 rounds"),
    "one_draw_composed": ("sampled_otherwise", "chooses the batches of 3 rounds"),
    "split_and_folded": ("key_used_twice", "hand over the same key"),
    "folded_twice": ("key_used_twice", "is both drawn from and split"),
    "kept_key": ("key_used_twice", "hand over the same key"),
    "stuck_in_a_scan": ("key_used_twice", "folds in state.count, which is the same each time"),
    "stuck_in_a_loop": ("key_used_twice", "folds in state.count, which is the same each time"),
    "short_waits": ("sampled_otherwise", "with probability 0.75"),
    "above": ("sampled_otherwise", "with probability 0.788"),
}


def told(name):
    step = mechanisms.mechanism(getattr(kept_state, name), releases="transcript", clip=1.0, noise_multiplier=1.0)
    rounds = kept_state.ROUNDS
    claim = guarantees.poisson_training(rate=0.5, noise_multiplier=1.0, steps=rounds, accountant="certified")
    if name.endswith("composed"):
        claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0).compose(rounds)
    return explain(step, trees_library.pair(), key=jax.random.key(0), claim=claim)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_said_about_right_code(name):
    assert told(name).findings == ()


@pytest.mark.few(1)
@pytest.mark.parametrize("name", WRONG)
def test_the_line_of_the_bug_stands_first(name):
    kind, says = WRONG[name]
    (found,) = told(name).suspicions
    assert found.kind == kind
    assert found.lines[0] == kept_state.wrong_line(name), found
    assert says in found.says
