"""Laws kept on disk: found by all that decides them, believed only where they are whole."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

import guarantees
from guarantees.laws import kept as module
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.kept import kept, laws_kept_in
from guarantees.laws.law import Certificate
from guarantees.shuffling.spline_law import SplineLaw

COIN = DiscreteLaw(np.array([-1.0, 1.0]), np.array([np.e, 1.0]) / (1 + np.e), np.array([1.0, np.e]) / (1 + np.e))


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder in which everything is kept, however quickly it was computed."""
    monkeypatch.setattr(module, "WORTH_KEEPING", 0.0)
    with laws_kept_in(tmp_path):
        yield tmp_path


class Counted:
    """A computation that counts its calls."""

    def __init__(self, value):
        self.value, self.calls = value, 0

    def __call__(self):
        self.calls += 1
        return self.value


def only_file(folder):
    (found,) = folder.glob("*.law")
    return found


def test_a_law_is_computed_once_and_comes_back_to_the_last_bit(shelf):
    certificate = Certificate(proved="all", estimated="nothing", round_off=0.1, safe=COIN, leaked=None)
    law = DiscreteLaw(COIN.losses, COIN.without, COIN.with_record, error=1e-17, certificate=certificate)
    compute = Counted((law, 0.1, np.arange(3), "word", None))
    kept("thing", (1.0, "a"), compute)
    again, number, array, word, nothing = kept("thing", (1.0, "a"), compute)
    assert compute.calls == 1
    for name in ("losses", "without", "with_record", "error", "smallest_delta"):
        assert np.array_equal(getattr(again, name), getattr(law, name))
    assert again.certificate.safe.losses is again.losses
    assert (number, array.tolist(), word, nothing) == (0.1, [0, 1, 2], "word", None)


def test_everything_that_decides_a_law_is_in_its_name(shelf, monkeypatch):
    compute = Counted(COIN)
    others = [("thing", 1.0), ("other", 1.0), ("thing", np.nextafter(1.0, 2)), ("thing", 1), ("thing", "1.0")]
    others += [("thing", np.array([1.0])), ("thing", np.array([1.0], np.float32)), ("thing", (1.0,)), ("thing", COIN)]
    for what, decided_by in others:
        kept(what, decided_by, compute)
    assert compute.calls == len(others)
    monkeypatch.setattr(module, "_code", lambda _: ["other code"])
    kept("thing", 1.0, compute)
    assert compute.calls == len(others) + 1


def test_two_laws_of_one_name_in_two_modules_are_two_laws(shelf):
    compute = Counted(COIN)
    for place in ("guarantees.one", "guarantees.two"):
        kept("thing", dataclasses.make_dataclass("Law", ["mu"], namespace={"__module__": place})(1.0), compute)
    assert compute.calls == 2


def test_what_cannot_be_written_down_is_computed_each_time(shelf):
    compute = Counted(COIN)
    for _ in range(2):
        kept("thing", (lambda: None,), compute)
    assert compute.calls == 2
    assert not list(shelf.iterdir())


@pytest.mark.parametrize("damage", ["one bit", "cut", "empty", "not a law", "another's key"])
def test_a_file_that_is_not_whole_is_computed_again_and_replaced(shelf, damage):
    compute = Counted(COIN)
    kept("thing", 1.0, compute)
    file = only_file(shelf)
    whole = file.read_bytes()
    if damage == "one bit":
        file.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    elif damage == "another's key":
        kept("other", 1.0, compute)
        (other,) = set(shelf.glob("*.law")) - {file}
        file.write_bytes(other.read_bytes())
        compute.calls = 1
    else:
        file.write_bytes({"cut": whole[:-8], "empty": b"", "not a law": b"hello\nworld\n"}[damage])
    assert kept("thing", 1.0, compute) is COIN
    assert compute.calls == 2
    assert file.read_bytes() == whole


def test_a_whole_file_whose_law_is_none_of_a_pair_is_computed_again(shelf):
    wrong = DiscreteLaw(COIN.losses, COIN.without, COIN.with_record[::-1])
    kept("thing", 1.0, Counted(wrong))
    compute = Counted(COIN)
    assert kept("thing", 1.0, compute) is COIN
    assert compute.calls == 1
    kept("numbers", 1.0, Counted(np.array([2.0])))
    compute = Counted(np.array([0.5]))
    assert kept("numbers", 1.0, compute, holds=lambda found: bool((found <= 1).all()))[0] == 0.5


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners are another thing here")
def test_another_users_file_is_computed_again(shelf, monkeypatch):
    compute = Counted(COIN)
    kept("thing", 1.0, compute)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    kept("thing", 1.0, compute)
    assert compute.calls == 2


def test_nothing_is_kept_where_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WORTH_KEEPING", 0.0)
    with laws_kept_in(tmp_path):
        pass
    kept("thing", 1.0, Counted(COIN))
    assert not list(tmp_path.iterdir())


def test_the_oldest_make_room(shelf, monkeypatch):
    for place in range(4):
        kept("thing", place, Counted(COIN))
        os.utime(max(shelf.glob("*.law"), key=os.path.getmtime), (place, place))
    size = only_size = max(own.stat().st_size for own in shelf.glob("*.law"))
    monkeypatch.setattr(module, "MOST", 3 * only_size + 2)
    kept("thing", 4, Counted(COIN))
    assert len(list(shelf.glob("*.law"))) == 3
    assert size > 0


def test_small_files_are_not_all_looked_at_for_each_of_them(shelf, monkeypatch):
    looked, look = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: looked.append(Path(folder)) or look(folder))
    for place in range(4):
        kept("thing", place, Counted(COIN))
    assert looked.count(shelf) == 1
    assert len(list(shelf.glob("*.law"))) == 4


@pytest.mark.long
def test_real_laws_are_the_same_when_read(shelf):
    def answers():
        curve = guarantees.normalised_round(
            normalise_by="realised_batch", records=4, rate=0.7, noise_multiplier=10.0, dimension=100
        ).curve
        poisson = guarantees.poisson_training(rate=0.1, noise_multiplier=1.0, steps=5, accountant="certified")
        shuffled = guarantees.fixed_batch_shuffle(rounds=3, noise_multiplier=1.0).law
        spline = SplineLaw(shuffled, spacing=1.0, farthest=3.0, probes=0)
        at = np.linspace(-2, 2, 9)
        return [
            *curve.delta(np.linspace(0, 1, 5)).tolist(),
            curve.error,
            *poisson.delta(np.linspace(0, 1, 5)).tolist(),
            poisson.error,
            poisson.certificate.proved,
            *spline.tails(at).with_above.tolist(),
            spline.error,
        ]

    first = answers()
    assert len(list(shelf.glob("*.law"))) == 3
    assert answers() == first
    with laws_kept_in(None):
        assert answers() == first


def test_a_process_without_a_folder_remembers_numbers_and_computes_arrays_again():
    calls = []

    def computed(value):
        return lambda: (calls.append(1), value)[1]

    with laws_kept_in(None):
        for _ in range(2):
            assert kept("numbers of this test", (1.0, "a"), computed((2.5, None))) == (2.5, None)
        assert kept("numbers of this test", (1.0, "b"), computed(3)) == 3
        assert len(calls) == 2
        for _ in range(2):
            kept("arrays of this test", (1.0, "a"), computed(np.ones(2)))
        assert len(calls) == 4
