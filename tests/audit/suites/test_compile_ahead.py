import dataclasses
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from compilations import compilations

import distinguishers
import mechanisms
from audit.suites.build import Built, build_suite
from audit.suites.compile_ahead import compile_programs, compiled_ahead, is_ours
from audit.suites.read import parse_suite
from audit.suites.run import run_suite
from audit.trials.both_sides import both_sides
from audit.trials.executor import LOCAL
from audit.trials.user_code_errors import MechanismError
from distinguishers.contract import OneScore
from mechanisms.contract import OutputKind
from mechanisms.simulators.one_round import OneRound
from mechanisms.structure import structured

ROUND = """
trials = 2000
risk = 0.05
seed = 3

[[audit]]
name = "EASGM"
expect = "violation"
neighbours = "worst_case_pair"
distinguisher = "likelihood_ratio"
claim = "subsampled_gaussian"
mechanism = { kind = "one_round", normalise_by = "expected_batch" }
parameters = { records = 2, dimension = DIMENSION, rate = 0.5, noise_multiplier = 4.0, clip = 0.1 }
"""
SHUFFLED = """
trials = 2000
risk = 0.05

[[audit]]
name = "shuffled"
expect = "violation"
mechanism = { kind = "many_rounds", simulator = "collapsed", sees = "isolated", sampler = SAMPLER }
neighbours = { kind = "worst_case_pair", relation = "zero_out" }
distinguisher = "likelihood_ratio"
claim = { kind = "gaussian", mu = 0.1, relation = "zero_out" }
parameters = { records = RECORDS, dimension = 1, clip = 1.0, noise_multiplier = 0.5 }
"""


def suite_of(text, **numbers):
    for word, number in numbers.items():
        text = text.replace(word, str(number))
    return parse_suite(text, "suite.toml")


BOTH = ["jit(count_chunks)", "jit(draw_chunk)"]
SAMPLER = '{ kind = "shuffle", batch_size = 1 }'


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("suite", "programs"),
    [(suite_of(ROUND, DIMENSION=43), BOTH), (suite_of(SHUFFLED, RECORDS=11, SAMPLER=SAMPLER), BOTH[:1])],
)
def test_one_program_counts_and_one_draws_a_diagnosis_and_both_are_compiled_ahead(suite, programs):
    (audit,) = build_suite(suite)
    assert is_ours(audit)
    with compilations() as ahead:
        compile_programs(audit)
    # beside programs of a line: a seed's key, an array of a new shape
    assert sorted(name for name in ahead.names if "chunk" in name) == programs
    with compilations() as own:
        (record,) = run_suite(suite)
    assert record.diagnoses
    assert not [name for name in own.names if "chunk" in name]
    assert max(ahead.compiled - len(programs), own.compiled) <= 6


def test_counts_are_the_same_without_it(monkeypatch):
    suite = suite_of(ROUND, DIMENSION=43)
    (ahead,) = run_suite(suite)
    monkeypatch.setattr("audit.suites.compile_ahead.is_ours", lambda audit: False)
    (alone,) = run_suite(suite)
    assert ahead.grids == alone.grids
    assert ahead.points == alone.points


def test_users_code_is_left_to_its_own_turn():
    (audit,) = build_suite(suite_of(ROUND, DIMENSION=43))
    called = []

    def step(key, data):
        called.append(threading.current_thread())
        return data.sum(0)

    rows = mechanisms.Neighbours(without=np.ones((2, 3)), with_record=np.ones((3, 3)), relation="add_remove")
    theirs = {
        "mechanism": mechanisms.mechanism(step),
        "neighbours": rows,
        "distinguisher": distinguishers.distinguisher(lambda output: output[0]),
    }
    for part, own in theirs.items():
        assert not is_ours(Built(**{**vars(audit), part: own}))
    with compiled_ahead(LOCAL) as add:
        add(Built(**{**vars(audit), **theirs}))
    assert called == []


def test_so_is_a_users_class_that_answers_every_question():
    (audit,) = build_suite(suite_of(ROUND, DIMENSION=43))
    called = []

    class Own(OneRound):
        def release_on(self, dataset):
            called.append(threading.current_thread())
            return super().release_on(dataset)

    @structured(numbers=("weight",))
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
    class Weighted(OneScore):
        weight: float
        name: str = "weighted"
        parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
        accepts: tuple[OutputKind, ...] = ("vector",)
        curve: None = None

        def __call__(self, key, output):
            called.append(threading.current_thread())
            return self.weight * output[0]

    step = Own(normalise_by="none", rate=0.5, clip=0.1, noise_multiplier=4.0)
    theirs = [{"mechanism": step}, {"mechanism": mechanisms.repeated(step=step, times=2)}]
    for own in [*theirs, {"distinguisher": Weighted(weight=2.0)}]:
        compile_programs(Built(**{**vars(audit), **own}))
    assert called == []


def test_ctrl_c_does_not_wait_for_a_compilation(monkeypatch):
    begun, released, ended = threading.Event(), threading.Event(), threading.Event()

    def compiling(audit):
        begun.set()
        released.wait(10)
        ended.set()

    def interrupted():
        with compiled_ahead(LOCAL) as add:
            add(None)
            add(None)
            begun.wait(10)
            raise KeyboardInterrupt

    monkeypatch.setattr("audit.suites.compile_ahead.compile_programs", compiling)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not ended.is_set()
    released.set()
    assert ended.wait(10)


def test_what_fails_ahead_is_told_in_the_audits_own_turn():
    (audit,) = build_suite(suite_of(ROUND, DIMENSION=43))
    other = distinguishers.projection(mechanisms.worst_case_pair(records=2, dimension=44, clip=0.1))
    wrong = Built(**{**vars(audit), "distinguisher": other})
    assert is_ours(wrong)
    compile_programs(wrong)
    with pytest.raises(MechanismError, match="must have shape"):
        both_sides(wrong.mechanism, wrong.neighbours).scored(other)
