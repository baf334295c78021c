"""JAX loaded at its first use: every structured class is a pytree from then on, whoever loads it."""

import subprocess
import sys

import pytest

LATE = """
import importlib.util, sys
import numpy as np
from mechanisms.simulators.rounds import TableRound, table_round
from mechanisms.pairs.neighbours import GradientTable

table = GradientTable(rows=np.ones((2, 1)), counts=(1, 1), dimension=3)
release = table_round(table, clip=1.0, rate=0.5, deviation=1.0, divisor=None)
assert importlib.util.find_spec("jax") is not None
assert "jax" not in sys.modules
import jax

leaves = jax.tree.leaves(release)
assert len(leaves) > 1 and not isinstance(leaves[0], TableRound), leaves
made_after = table_round(table, clip=1.0, rate=0.5, deviation=1.0, divisor=None)
assert jax.tree.structure(made_after) == jax.tree.structure(release)
assert jax.eval_shape(release, jax.random.key(0)).shape == (3,)
import audit.suites.run, audit.report.page, audit.diagnosis, audit.diagnosis.explain.jaxprs.replay

print("scipy.stats:", "scipy.stats" in sys.modules)
"""


@pytest.fixture(scope="module")
def done():
    return subprocess.run([sys.executable, "-c", LATE], check=False, capture_output=True, text=True)


@pytest.mark.long
def test_structured_objects_made_before_jax_is_loaded_are_pytrees_after_it(done):
    assert done.returncode == 0, done.stderr


def test_a_run_does_not_import_scipy_stats(done):
    assert done.stdout.strip() == "scipy.stats: False"
