"""A user's own model and data, told nothing else: the default audit finds a way to read what is released."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import audit
import guarantees
import mechanisms
from audit.trials.both_sides import both_sides
from audit.trials.source import MechanismError

EXAMPLES = Path(__file__).parents[2] / "examples"
KEY = jax.random.key(11)
PAIR = mechanisms.image_pair(records=3)
MIX = np.random.default_rng(0).standard_normal((785, 1690)).astype(np.float32) / 785


def network_step(key, rows):
    """1690 numbers from rows of 785: a network stands between them."""
    gradients = jnp.tanh(rows @ MIX)
    clipped = gradients / jnp.maximum(1.0, jnp.linalg.norm(gradients, axis=1, keepdims=True))
    return {"kernel": (jnp.sum(clipped, axis=0) + 2.0 * jax.random.normal(key, (1690,))).reshape(13, 130)}


def bare_step(key, rows):
    return jax.tree.map(lambda leaf: 0.1 * leaf, network_step(key, 20 * rows)) | {"loss": jnp.sum(rows)}


def test_the_length_of_a_release_need_not_be_that_of_a_row():
    assert both_sides(network_step, PAIR).layout().size == 1690
    claim = guarantees.gaussian(mu=0.5)
    found = audit.run_audit(bare_step, PAIR, claim=claim, trials=200, risk=0.05, key=KEY)
    assert found.verdict == "violation"
    assert not any(answer.wrong for answer in found.diagnoses if "Error" in answer.says)


def test_a_score_that_does_not_fit_the_output_is_blamed_and_not_the_step():
    import distinguishers

    score = distinguishers.norm(PAIR)
    with pytest.raises(MechanismError, match=r"the distinguisher 'norm' failed on outputs of 'network_step', of shape"):
        audit.run_audit(network_step, PAIR, score, claim=guarantees.gaussian(mu=1.0), trials=20, risk=0.05, key=KEY)


@pytest.mark.long
@pytest.mark.parametrize("broken", [True, False])
def test_the_example_of_an_own_flax_model(broken, monkeypatch):
    pytest.importorskip("flax")
    monkeypatch.syspath_prepend(EXAMPLES)
    import own_flax

    record = own_flax.main(own_flax.broken_update if broken else own_flax.update, trials=300)
    assert record.releases == "transcript"
    assert (record.verdict == "violation") == broken
    sys.modules.pop("own_flax")


def test_the_example_names_us_in_its_last_ten_lines_alone():
    lines = (EXAMPLES / "own_flax.py").read_text().rstrip().splitlines()
    ours = ("audit.", "guarantees.", "mechanisms.", "import audit")
    named = [number for number, line in enumerate(lines) if any(name in line for name in ours)]
    assert min(named) >= len(lines) - 10
