from __future__ import annotations

import numpy as np
import pytest
from attack import mixed
from attack.draws import SPACES
from attack.large import LARGE_LOSSES
from attack.run import drawn, report, run

import guarantees


@pytest.mark.long
@pytest.mark.parametrize("shard", range(8))
def test_no_draw_of_any_constructor_is_a_fault(shard, tmp_path):
    """A sample: as many of 400 draws as begin within a CPU minute a shard. `python -m attack.run` draws all."""
    lines = run(draws=400, shard=shard, shards=8, folder=tmp_path, seconds=60.0)
    assert lines
    assert not [line for line in lines if line["verdict"] == "fault"], report(lines)
    assert sum(line["verdict"] == "refused" for line in lines) <= max(2, 0.1 * len(lines)), report(lines)


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "draws", "shard", "shards"),
    [
        *(("composed", 100, shard, 4) for shard in range(4)),
        ("mixed", 40, 0, 1),
        ("numbers", 60, 0, 1),
        ("large", 300, 0, 1),
    ],
)
def test_no_composition_and_no_single_number_is_a_fault(what, draws, shard, shards, tmp_path):
    lines = run(draws=draws, shard=shard, shards=shards, folder=tmp_path, seconds=120.0 / shards, what=what)
    assert lines
    assert not [line for line in lines if line["verdict"] == "fault"], report(lines)


def test_a_composition_that_loses_a_delta_is_a_fault(monkeypatch):
    parts = [
        {"name": "gaussian", "given": {"mu": 1.0}, "times": 2},
        {"name": "epsilon_delta", "given": {"epsilon": 0.0, "delta": 1e-3}, "times": 1},
    ]
    assert mixed.check({"parts": parts}, np.random.default_rng(1))[1] == []
    monkeypatch.setattr(mixed, "composed", lambda parts: guarantees.gaussian(mu=1.0).compose(2))
    judged, wrong = mixed.check({"parts": parts}, np.random.default_rng(1))
    assert judged
    assert wrong


def test_a_shard_goes_on_where_it_stopped_and_never_repeats(tmp_path, monkeypatch):
    asked = []

    def quick(index, what):
        asked.append(index)
        return {"index": index, "name": "none", "verdict": "right", "seconds": 0.0, "why": []}

    monkeypatch.setattr("attack.run.attacked", quick)
    run(draws=5, shard=1, shards=2, folder=tmp_path, seconds=60.0)
    lines = run(draws=9, shard=1, shards=2, folder=tmp_path, seconds=60.0)
    assert asked == [line["index"] for line in lines] == [1, 3, 5, 7]


def test_a_draw_depends_on_its_index_alone():
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert len({drawn(index)[0].name for index in range(300)}) == len(SPACES)


def test_a_large_epsilon_that_is_off_by_a_tenth_is_a_fault(monkeypatch):
    right = guarantees.epsilon_delta
    given = {"epsilon": 650.0, "delta": 0.0, "times": 1}
    rng = np.random.default_rng(1)
    answers = next(space for space in LARGE_LOSSES if space.name == "epsilon_delta")
    assert answers.check(given, rng) == (14, [])
    monkeypatch.setattr(
        guarantees, "epsilon_delta", lambda *, epsilon, delta: right(epsilon=epsilon + 0.1, delta=delta)
    )
    assert answers.check(given, rng)[1]
