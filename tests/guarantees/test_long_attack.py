from __future__ import annotations

import numpy as np
import pytest
from attack.draws import SPACES
from attack.oracles import disagreements
from attack.run import drawn, report, run

import guarantees


@pytest.mark.long
@pytest.mark.parametrize("shard", range(8))
def test_no_draw_of_any_constructor_is_a_fault(shard, tmp_path):
    lines = run(draws=400, shard=shard, shards=8, folder=tmp_path, seconds=600.0)
    assert not [line for line in lines if line["verdict"] == "fault"], report(lines)
    assert sum(line["verdict"] == "refused" for line in lines) <= 0.1 * len(lines), report(lines)


@pytest.mark.long
@pytest.mark.parametrize(("what", "draws"), [("composed", 100), ("numbers", 60)])
def test_no_composition_and_no_single_number_is_a_fault(what, draws, tmp_path):
    lines = run(draws=draws, shard=0, shards=1, folder=tmp_path, seconds=1200.0, what=what)
    assert not [line for line in lines if line["verdict"] == "fault"], report(lines)


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


def test_sums_over_a_grid_judge_tails_that_sampling_does_not_see():
    class Off:
        """mu-GDP with every delta too large by a fiftieth."""

        error = 0.0

        def delta(self, epsilon, direction):
            return 1.02 * guarantees.gaussian(mu=1.0).delta(epsilon, direction)

    for name, given in (("gaussian", {"mu": 1.0}), ("isolated_shuffle", {"rounds": 2, "noise_multiplier": 0.5})):
        claim = getattr(guarantees, name)(**given)
        judged, wrong = disagreements(name, given, claim, np.random.default_rng(1))
        assert judged >= 8
        assert not wrong
    _, wrong = disagreements("gaussian", {"mu": 1.0}, Off(), np.random.default_rng(1))
    assert sum("summed" in line for line in wrong) == 6
