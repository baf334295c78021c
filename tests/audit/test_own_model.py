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
from audit.trials.user_code_errors import MechanismError
from mechanisms.pairs.gradient_pairs import GradientsError, known_lengths, told_pair
from mechanisms.pairs.neighbours import materialise

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


@pytest.mark.long
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


def noisy(key, rows):
    return jnp.sum(rows, axis=0) + jax.random.normal(key, rows.shape[1:])


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda key, rows: np.asarray(rows).sum(0), r"side 'without'.*TracerArray.*mechanisms\.callable_step"),
        (lambda key, rows: "text", r"it returns a str, and a step must return an array.*test_own_model\.py:\d+"),
        (lambda key, rows: {}["weights"], r"side 'without' at \S*test_own_model\.py:\d+: KeyError: 'weights'"),
    ],
)
def test_a_step_that_cannot_be_traced_is_told_how_it_is_called(step, message):
    with pytest.raises(MechanismError, match=f"(?s){message}"):
        audit.run_audit(step, PAIR, claim=guarantees.gaussian(mu=1.0), trials=20, risk=0.05, key=KEY)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"claim": (1.0, 1e-5)}, r"claim must be one of guarantees.*claim_from_table\(\[\(epsilon, delta\)\]\)"),
        ({"neighbours": (PAIR.without, PAIR.with_record)}, r"neighbours must be a pair.*mechanisms\.pair\(without"),
        ({"mechanism": lambda rows: rows.sum(0)}, r"a step is called with \(key, dataset\).*own_model\.py:\d+\)"),
        ({"mechanism": lambda rows, key: rows}, r"called with \(key, dataset\).*it has them in another order"),
        ({"mechanism": PAIR}, "a mechanism is a function of a key and a dataset.*got Neighbours"),
    ],
)
def test_a_part_of_another_kind_is_refused_by_name(given, message):
    parts = {"mechanism": noisy, "neighbours": PAIR, "claim": guarantees.gaussian(mu=1.0)} | given
    with pytest.raises(TypeError, match=message) as refused:
        audit.run_audit(**parts, trials=20, risk=0.05, key=KEY)
    assert len(str(refused.value)) < 300


def test_a_score_of_several_numbers_is_refused():
    claim = guarantees.gaussian(mu=1.0)
    with pytest.raises(MechanismError, match=r"one score per output.*got shape \(785,\).*distinguishers\.fit"):
        audit.run_audit(noisy, PAIR, lambda output: output, claim=claim, trials=20, risk=0.05, key=KEY)


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


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        (lambda rows: rows[1:], r"gradients= of 'noisy'.* a row for each of the 4 records, got .*\(3, 785\)"),
        (lambda rows: rows.sum(), r"a row for each of the 4 records, got .*\(\)"),
        (lambda rows: {"w": rows, "b": rows[:1]}, r"a row for each of the 4 records, got .*\(1, 785\) of 'b'"),
        (lambda rows: rows * np.nan, "must be finite, got nan"),
        (lambda rows: rows @ np.ones((3, 3)), "gradients= of 'noisy'.*matmul"),
        (lambda rows: rows[:, 1:], r"784 coordinates.* 785;.*or leave gradients= out"),
    ],
)
def test_gradients_that_do_not_fit_records_and_release_are_refused(gradients, message):
    step = mechanisms.mechanism(noisy, gradients=gradients)
    with pytest.raises(GradientsError, match=message):
        audit.run_audit(step, PAIR, claim=guarantees.gaussian(mu=1.0), trials=40, risk=0.05, key=KEY)


def test_gradients_of_a_training_are_checked_too():
    training = mechanisms.jax_training(
        lambda key: jnp.zeros(785),
        lambda key, state, batch: (state, noisy(key, batch)),
        lambda key, records: jnp.arange(records),
        steps=2,
        gradients=lambda rows: rows[:-1],
    )
    claim = guarantees.gaussian(mu=2.0)
    with pytest.raises(GradientsError, match=r"gradients= of 'lambda of .*test_own_model'.*each of the 4 records"):
        audit.run_audit(training, PAIR, claim=claim, trials=40, risk=0.05, key=KEY)


@pytest.mark.long
def test_a_step_may_gather_records_by_a_traced_index():
    rows = {"x": np.eye(4, dtype=np.float32), "y": np.arange(4)}
    own = mechanisms.pair({key: leaf[:3] for key, leaf in rows.items()}, rows)

    def step(key, data):
        index = jax.random.randint(key, (2,), 0, len(data["y"]))
        return data["x"][index].sum(0) + data["y"][index].sum() + jax.random.normal(key, (4,))

    record = audit.run_audit(
        step,
        own,
        lambda output: output[3],
        claim=guarantees.gaussian(mu=9.0),
        trials=100,
        risk=0.05,
        key=jax.random.key(0),
    )
    assert record.verdict != "violation"


def test_a_function_of_a_seed_names_pytorch_where_its_module_imports_it():
    """The record's versions name it, and only then does a report send a reader to a replay of its lines."""
    module = {"np": np}
    exec("def step(seed, records): return records[0]", module)
    assert mechanisms.callable_step(module["step"]).libraries == ()
    module["torch"] = type(sys)("torch")
    assert mechanisms.callable_step(module["step"]).libraries == ("torch",)


def test_gradients_are_told_of_one_exchanged_record():
    step = mechanisms.callable_step(lambda seed, records: records[0], gradients=lambda records: 2 * records)
    record = np.array([[3.0, 4.0]], np.float32)
    pair = mechanisms.replace_record(record, 0, -record[0])
    read = told_pair(pair, step)
    assert np.allclose(materialise(read.without), 2 * record)
    assert np.allclose(materialise(read.with_record), -2 * record)
    assert known_lengths(step, pair).record == pytest.approx(10)
