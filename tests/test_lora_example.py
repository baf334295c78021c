"""The LoRA example: canaries are records like others, and a training proves what was planned for it."""

import importlib.util
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def lora():
    spec = importlib.util.spec_from_file_location("lora_jax", EXAMPLES / "lora_jax.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_canary_is_clipped_to_its_coordinate_and_a_padded_one_adds_nothing(lora):
    weights = {"a": jnp.ones((2, 3)), "b": jnp.zeros(4)}
    batch = lora.padded({"coordinate": np.array([7, 7, 2])}, 5)
    total = np.asarray(lora.own_sum(lora.canary_loss)(weights, batch))
    np.testing.assert_allclose(total, lora.CLIP * np.bincount([7, 7, 2], minlength=10), rtol=1e-6)
    with pytest.raises(ValueError, match="6 records; make room for more than 5"):
        lora.padded({"coordinate": np.arange(6)}, 5)


def test_lines_of_text_are_told_apart_though_their_gradients_overlap(lora):
    rng = np.random.default_rng(0)
    apart, seen = np.eye(4, 9, dtype=np.float32), rng.normal(size=9).astype(np.float32)
    np.testing.assert_allclose(lora.joined_odds(apart, seen, 2.0), (seen[:4] - 0.5) / 2, rtol=1e-5, atol=1e-6)
    # a shared direction that says nothing of which one joined; the first and the third line did, and noise is small
    overlapping = 0.9 + 0.4 * apart
    seen = overlapping[[0, 2]].sum(0) + 0.01 * rng.normal(size=9).astype(np.float32)
    told = np.asarray(lora.joined_odds(overlapping, seen, 0.01**2))
    assert (told > 100).tolist() == [True, False, True, False]
    assert (told < -100).tolist() == [False, True, False, True]


@pytest.mark.long
@pytest.mark.parametrize("by", ["own", "jax_privacy"])
def test_one_lora_training_proves_most_of_what_no_test_exceeds(lora, by, monkeypatch, capsys):
    pytest.importorskip("jax_privacy")
    words = ["lora_jax.py", "--epsilon", "8", "--canaries", "2000", "--by", by]
    monkeypatch.setattr(sys, "argv", words)
    lora.main()
    cells = capsys.readouterr().out.splitlines()[-1].split("|")
    proven, limit = float(cells[5]), float(cells[7])
    assert 0.5 * limit < proven < 8, "a lower bound of what is claimed, and no less than half of the limit"
