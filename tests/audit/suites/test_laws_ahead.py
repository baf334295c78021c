import time

import pytest

import distinguishers
from audit.policies.candidates import from_curve
from audit.suites import laws_ahead as ahead
from audit.suites.build import build
from audit.suites.read import parse_suite
from guarantees.laws.kept import found_on_disk, is_kept, laws_kept_in

SUITE = """
[defaults]
neighbours = "worst_case_pair"
distinguisher = "likelihood_ratio"
claim = "subsampled_gaussian"

[[audit]]
name = "EASGM"
mechanism = { kind = "one_round", normalise_by = "expected_batch" }
parameters = { records = 4, dimension = 10, rate = [0.1, 0.2, 0.3, 0.4], noise_multiplier = 10.0, clip = 0.1 }
"""


@pytest.fixture
def audits():
    return parse_suite(SUITE, "suite.toml").audits


@pytest.fixture
def processes(monkeypatch):
    """Every process that was started."""
    started, start = [], ahead.subprocess.Popen

    def popen(*words, **how):
        started.append(start(*words, **how))
        return started[-1]

    monkeypatch.setattr(ahead.subprocess, "Popen", popen)
    monkeypatch.setattr(ahead.os, "cpu_count", lambda: 2)
    return started


def test_a_second_process_finds_the_laws_and_is_not_started_again(audits, tmp_path, processes):
    told = ahead._told(audits)
    with laws_kept_in(tmp_path):
        with ahead.laws_ahead(audits, tmp_path):
            end = time.monotonic() + 120
            while not is_kept(ahead.FOUND, told):
                assert processes[0].poll() is None or is_kept(ahead.FOUND, told)
                assert time.monotonic() < end
                time.sleep(0.02)
        before = found_on_disk()
        from_curve(build(audits[0]).distinguisher.curve)
        assert found_on_disk() > before
        with ahead.laws_ahead(audits, tmp_path):
            pass
    assert len(processes) == 1


def test_it_ends_with_the_run(audits, tmp_path, processes):
    with laws_kept_in(tmp_path):
        with pytest.raises(RuntimeError, match="a run that fails"), ahead.laws_ahead(audits, tmp_path):
            raise RuntimeError("a run that fails")
        assert not is_kept(ahead.FOUND, ahead._told(audits))
    assert processes[0].returncode is not None


def test_few_audits_and_those_of_which_nothing_is_kept_start_none(audits, tmp_path, processes):
    with laws_kept_in(tmp_path), ahead.laws_ahead(audits[1:], tmp_path):
        pass
    with laws_kept_in(None), ahead.laws_ahead(audits, None):
        pass
    assert not processes


def test_a_machine_that_starts_no_process_runs_the_suite_all_the_same(audits, tmp_path, monkeypatch):
    def refused(*words, **how):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(ahead.subprocess, "Popen", refused)
    ran = []
    with laws_kept_in(tmp_path), ahead.laws_ahead(audits, tmp_path):
        ran.append(True)
    assert ran


def test_code_of_the_users_is_not_run_there(tmp_path, monkeypatch):
    told = tmp_path / "told"
    (tmp_path / "scores_of_laws_ahead.py").write_text(f"open({str(told)!r}, 'w')\ndef score(output): return output[0]")
    monkeypatch.syspath_prepend(tmp_path)
    text = SUITE.replace('"likelihood_ratio"', '{ function = "scores_of_laws_ahead:score" }')
    (spec, *_) = parse_suite(text, "suite.toml").audits
    assert ahead._find([spec]) == 0
    assert not told.exists()
    build(spec)
    assert told.exists()


def test_a_curve_is_computed_when_it_is_asked_for_and_not_before():
    class Score:
        name, parameters, accepts = "score", {}, ("any",)

        @property
        def members(self):
            return (self,)

        @property
        def curve(self):
            raise AssertionError("nobody asked")

        def __call__(self, key, output):
            return output

    score = Score()
    assert distinguishers.distinguisher(score) is score
