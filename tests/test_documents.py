"""Every Python block of the README and of the documents runs, in order, the blocks of a file in one namespace."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

ROOT = Path(__file__).parents[1]
DOCTESTS = {"docs/theorems.md"}
"""Run, with their answers, by tests/guarantees/test_docs.py."""
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {
    str(file.relative_to(ROOT)): re.findall(r"^```python\n(.*?)^```", file.read_text(), flags=re.DOTALL | re.MULTILINE)
    for file in FILES
}
LONG = {
    ("README.md", 0),
    ("docs/accountants.md", 3),
    ("docs/adapters.md", 0),
    ("docs/adapters.md", 1),
    ("docs/adapters.md", 2),
    ("docs/adapters.md", 4),
    ("docs/adaptive-shuffling.md", 0),
    ("docs/ci.md", 0),
    ("docs/cluster.md", 0),
    ("docs/extending.md", 4),
    ("docs/extending.md", 5),
    ("docs/float-tails.md", 0),
    ("docs/index.md", 0),
    ("docs/one-run.md", 5),
    *(("docs/opacus-to-paper.md", number) for number in range(5)),
    ("docs/own-attack.md", 2),
    ("docs/own-model.md", 2),
    ("docs/own-model.md", 4),
    ("docs/own-model.md", 5),
    ("docs/own-model.md", 7),
    ("docs/own-model.md", 8),
    ("docs/trainings.md", 0),
    ("docs/tutorial.md", 1),
    ("docs/tutorial.md", 2),
}
"""Trainings by PyTorch and what reads their records, batteries on ten thousand trials, and what tests show, too."""
VERDICT = re.compile(r"verdict\)? +# \"?(violation|no_violation_found|inconclusive)")
CASES = [
    pytest.param(
        name,
        number,
        marks=[pytest.mark.long] if (name, number) in LONG else [],
        id=f"{name}-{number}",
    )
    for name, blocks in BLOCKS.items()
    if name not in DOCTESTS
    for number in range(len(blocks))
]


def dp_step(key, gradients, rate=0.1, clip=1.0, noise_multiplier=1.0):
    key_batch, key_noise = jax.random.split(key)
    clipped = gradients / jnp.maximum(1.0, jnp.linalg.norm(gradients, axis=1, keepdims=True) / clip)
    taken = jax.random.bernoulli(key_batch, rate, (len(gradients), 1))
    return jnp.sum(taken * clipped, 0) + noise_multiplier * clip * jax.random.normal(key_noise, gradients.shape[1:])


@pytest.fixture(scope="session")
def documents():
    """Each a module of its own: dataclasses look up the module that defines them. Other tests may run in between."""
    return {name: types.ModuleType("document") for name in BLOCKS}


@pytest.fixture
def reader(monkeypatch):
    """Somebody with a library of their own, in the root of a checkout."""
    library = types.ModuleType("my_library")
    library.__dict__.update(my_step=dp_step, dp_step=dp_step)
    monkeypatch.setitem(sys.modules, "my_library", library)
    monkeypatch.chdir(ROOT)


def _run_earlier(name, number, space):
    """What this block builds on, where another worker has run it."""
    done = space.setdefault("_blocks_run", set())
    for earlier in sorted(set(range(number)) - done):
        if (name, earlier) not in LONG:
            exec(compile(BLOCKS[name][earlier], f"{name}, block {earlier}", "exec"), space)
    done |= set(range(number + 1))


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_block_runs(name, number, documents, monkeypatch, dp_audit, dp_explain):
    fixtures = {"dp_audit": dp_audit, "dp_explain": dp_explain}
    monkeypatch.setitem(sys.modules, "document", documents[name])
    block, space = BLOCKS[name][number], vars(documents[name])
    so_far = "".join(BLOCKS[name][: number + 1])
    for library in ("torch", "opacus", "jax_privacy"):
        if library in so_far and importlib.util.find_spec(library) is None:
            pytest.skip(f"it, or a block before it, needs {library}")
    _run_earlier(name, number, space)
    before = set(space)
    try:
        exec(compile(block, f"{name}, block {number}", "exec"), space)
    except NameError as error:
        if error.name in ("record", "judged") and (name, number) in LONG:
            pytest.skip("needs the record of a block that was not run")
        raise
    if stated := VERDICT.search(block):
        assert space["record"].verdict == stated[1]
    for test in [space[key] for key in set(space) - before if key.startswith("test_")]:
        test(*(fixtures[wanted] for wanted in inspect.signature(test).parameters))


def test_every_document_with_code_is_run():
    assert {name for name, blocks in BLOCKS.items() if blocks} == {
        "README.md",
        "docs/accountants.md",
        "docs/adapters.md",
        "docs/adaptive-shuffling.md",
        "docs/beyond-sgd.md",
        "docs/ci.md",
        "docs/clients.md",
        "docs/cluster.md",
        "docs/command-protocol.md",
        "docs/conformance.md",
        "docs/eight-names.md",
        "docs/extending.md",
        "docs/float-tails.md",
        "docs/index.md",
        "docs/one-run.md",
        "docs/opacus-to-paper.md",
        "docs/own-attack.md",
        "docs/own-model.md",
        "docs/own-pair.md",
        "docs/statistics.md",
        "docs/theorems.md",
        "docs/trainings.md",
        "docs/tutorial.md",
        "docs/which-line-torch.md",
    }
