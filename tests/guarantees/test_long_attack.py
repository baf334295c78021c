from __future__ import annotations

import pytest
from attack.draws import SPACES
from attack.run import attacked, report, run


@pytest.mark.long
@pytest.mark.parametrize("shard", range(8))
def test_no_draw_of_any_constructor_is_a_fault(shard, tmp_path):
    lines = run(draws=400, shard=shard, shards=8, folder=tmp_path, seconds=600.0)
    assert not [line for line in lines if line["verdict"] == "fault"], report(lines)
    assert sum(line["verdict"] == "refused" for line in lines) <= 0.1 * len(lines), report(lines)


def test_a_shard_goes_on_where_it_stopped_and_never_repeats(tmp_path):
    first = run(draws=3, shard=0, shards=1, folder=tmp_path, seconds=0.0)
    again = run(draws=2, shard=0, shards=1, folder=tmp_path, seconds=60.0)
    third = run(draws=2, shard=0, shards=1, folder=tmp_path, seconds=60.0)
    assert [line["index"] for line in first + again] == [line["index"] for line in third] == [0, 1]
    assert [line["given"] for line in again] == [line["given"] for line in third]


def test_a_draw_depends_on_its_index_alone():
    quick = {space.name for space in SPACES if not space.slow}
    index = next(i for i in range(100) if attacked_name(i) in quick)
    assert attacked(index)["given"] == attacked(index)["given"]


def attacked_name(index):
    """Which constructor a draw attacks, without attacking it."""
    import numpy as np

    return SPACES[int(np.random.default_rng([20_261_115, index]).integers(len(SPACES)))].name
