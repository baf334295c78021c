"""The examples of a user's own training: as they stand in the long tests, with few trials in the fast ones."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import audit
import mechanisms
from audit.policies.chosen import Split
from mechanisms.release import flatten_rows

EXAMPLES = Path(__file__).parents[1] / "examples"
OURS = re.compile(r"\b(audit|mechanisms|distinguishers|guarantees)\.")


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_our_names_stand_in_the_last_ten_lines_of_the_opacus_example():
    lines = (EXAMPLES / "own_opacus.py").read_text().splitlines()
    assert not any(OURS.search(line) or "import audit" in line for line in lines[:-10])


@pytest.fixture
def own_opacus():
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")
    pytest.importorskip("opacus", reason="Opacus is not installed: pip install dpsgd-audit[opacus]")
    return example("own_opacus")


def alone(gradients, records):
    """What of the last record's gradient no other record has: the score of an adversary who knows them all."""
    rows, _ = flatten_rows(gradients, records)
    others, _ = np.linalg.qr(rows[:-1].T)
    own = rows[-1] - others @ (others.T @ rows[-1])
    return lambda output: jnp.sum(output @ own)


@pytest.mark.long
@pytest.mark.parametrize(("function", "wrong"), [("train", False), ("train_repeatably", True)])
def test_the_broken_twin_of_the_opacus_example_goes_red(own_opacus, function, wrong):
    images, labels = own_opacus.load_images()
    dataset = own_opacus.TensorDataset(images[:10], labels[:10])
    pair = mechanisms.add_record(dataset, (images[10], labels[10]))
    training = mechanisms.torch_training(getattr(own_opacus, function), releases="transcript")
    claim = training.claim(pair)
    assert claim.parameters["history"] == ((1.0, 1 / 3, 3),)
    score = alone(training.gradients(pair.with_record), 11)
    settings = {"trials": 60, "risk": 0.05, "key": jax.random.key(0), "policy": Split(fit_trials=40)}
    record = audit.run_audit(training, pair, score, claim=claim, diagnose=False, **settings)
    assert (record.verdict == "violation") is wrong
    assert record.releases == "transcript"
    assert {"torch", "opacus"} <= set(record.mechanism.parameters)


@pytest.mark.long
@pytest.mark.parametrize(("more", "verdict"), [([], "no_violation_found"), (["--broken"], "violation")])
def test_the_opacus_example_says_what_it_should(own_opacus, more, verdict):
    command = [sys.executable, str(EXAMPLES / "own_opacus.py"), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=EXAMPLES.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{verdict}:"), done.stdout
