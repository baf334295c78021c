import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import audit
import audit.report.page
import audit.suites.run
from audit.pytest_plugin import share_of_call
from dpsgd_audit.pytest_plugin import DEFAULT_RISK

pytest_plugins = "pytester"
EXAMPLE = Path(__file__).parents[2] / "examples" / "ci"
VARIANTS = sorted(path.stem for path in (EXAMPLE / "broken").glob("*.py"))

TOY = """
import jax
import jax.numpy as jnp
import pytest
import guarantees
from mechanisms import Neighbours

CLAIM = guarantees.gaussian(mu=1.0)
PAIR = Neighbours(without=jnp.zeros(1), with_record=jnp.ones(1), relation="zero_out")

class First:
    name, curve, accepts, parameters = "first", None, ("vector",), {}
    def __call__(self, key, output):
        return output[0]

def right(key, dataset):
    return dataset + jax.random.normal(key, dataset.shape)

def wrong(key, dataset):
    return 3 * dataset + jax.random.normal(key, dataset.shape)
"""
BOTH = """
def test_right(dp_audit):
    dp_audit(right, PAIR, First(), claim=CLAIM)

def test_wrong(dp_audit):
    dp_audit(wrong, PAIR, First(), claim=CLAIM)
"""


def run(pytester, tests, *options):
    pytester.makepyfile(TOY + tests)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)


def records(pytester):
    return {record.name: record for record in audit.load_records(pytester.path / "out" / "records.json")}


def test_a_violation_fails_readably_and_a_right_step_passes(pytester):
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.getgroup('own').addoption('--model')")
    result = run(pytester, BOTH, "--dp-audit-report=out", "--junitxml=junit.xml", "--model", "the small one")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*::test_wrong: violation (p-value *",
            "*claim:   gaussian(mu=1.0): epsilon 4.38 at delta 1e-05*",
            "*proven:  epsilon >= *",
            "*counts:  * false alarms in 5,000 trials without the record*",
            "*key:     threefry2x32:*",
            "*reproduce: pytest *::test_wrong* --dp-audit-seed=0 --dp-audit-risk=0.0005 --model 'the small one'",
            "dp-audit report: out/index.html",
        ]
    )
    found = records(pytester)
    assert {name.split("::")[1]: record.verdict for name, record in found.items()} == {
        "test_right": "no_violation_found",
        "test_wrong": "violation",
    }
    assert (pytester.path / "out" / "index.html").stat().st_size > 1000
    assert "dp_audit_record" not in (pytester.path / "junit.xml").read_text()


@pytest.mark.long
def test_the_command_to_reproduce_gives_the_same_counts(pytester):
    run(pytester, BOTH, "--dp-audit-report=out")
    whole = records(pytester)
    pytester.runpytest_inprocess(
        next(name for name in whole if name.endswith("test_wrong")),
        "--dp-audit-seed=0",
        "--dp-audit-risk=0.0005",
        "--dp-audit-report=out",
    )
    (alone,) = records(pytester).values()
    assert alone.points == whole[alone.name].points


@pytest.mark.long
def test_the_session_risk_is_shared_by_tests_and_by_their_calls(pytester):
    twice = """
def test_twice(dp_audit):
    dp_audit(right, PAIR, First(), claim=CLAIM)
    dp_audit(right, PAIR, First(), claim=CLAIM)
def test_other(dp_audit):
    dp_audit(right, PAIR, First(), claim=CLAIM)
def test_without_audit():
    pass
"""
    run(pytester, twice, "--dp-audit-trials=1000", "--dp-audit-report=out").assert_outcomes(passed=3)
    risks = {name.split("::")[1]: record.risk for name, record in records(pytester).items()}
    share = DEFAULT_RISK / 2
    assert risks == pytest.approx({"test_twice": 0.9 * share, "test_twice #2": 0.05 * share, "test_other": 0.9 * share})
    assert len({record.key for record in records(pytester).values()}) == 3


def test_calls_of_one_test_never_spend_more_than_its_share():
    assert sum(share_of_call(call) for call in range(1, 10_000)) < 1


def test_a_test_that_asks_for_the_fixture_only_while_it_runs_is_refused(pytester):
    late = """
def test_declared(dp_audit):
    dp_audit(right, PAIR, First(), claim=CLAIM)
@pytest.mark.usefixtures("dp_audit")
def test_marked(request):
    request.getfixturevalue("dp_audit")(right, PAIR, First(), claim=CLAIM)
def test_late(request):
    request.getfixturevalue("dp_audit")(right, PAIR, First(), claim=CLAIM)
"""
    result = run(pytester, late, "--dp-audit-trials=1000", "--dp-audit-report=out")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*dp_audit must be among the test's arguments*"])
    assert sum(record.risk for record in records(pytester).values()) <= DEFAULT_RISK


@pytest.mark.long
def test_too_few_trials_warn_and_can_be_made_to_fail(pytester):
    few = "def test_few(dp_audit): dp_audit(right, PAIR, First(), claim=CLAIM, trials=20)"
    result = run(pytester, few)
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*InconclusiveAuditWarning: *::test_few: *trials would be enough.*"])
    strict = pytester.runpytest_inprocess("--dp-audit-inconclusive=fail")
    strict.assert_outcomes(failed=1)
    strict.stdout.fnmatch_lines(["*::test_few: inconclusive*"])


@pytest.mark.long
def test_the_marker_gives_options_and_refuses_unknown_ones(pytester):
    marked = """
@pytest.mark.dp_audit(trials=600, risk=0.02, delta=1e-3, time_budget="1m")
def test_marked(dp_audit):
    record = dp_audit(right, PAIR, First(), claim=CLAIM)
    assert (record.trials_planned, record.risk, record.report_delta) == (600, 0.9 * 0.02, 1e-3)

@pytest.mark.dp_audit(trails=600)
def test_misspelt(dp_audit):
    dp_audit(right, PAIR, First(), claim=CLAIM)
"""
    result = run(pytester, marked, "--strict-markers")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*unknown option 'trails' (did you mean 'trials'?)*"])


def test_a_wrong_budget_is_refused(pytester):
    result = run(pytester, BOTH, "-k", "right", "--dp-audit-budget=soon")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a time budget is written like 60s*'soon'*"])


def test_a_seed_that_would_alias_another_is_refused(pytester):
    result = run(pytester, BOTH, "-k", "right", f"--dp-audit-seed={2**32}")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*--dp-audit-seed must be a whole number from 0 to 2^32 - 1*"])


@pytest.mark.long
def test_audits_run_on_several_workers(pytester):
    result = run(pytester, BOTH, "-n", "2", "--dp-audit-report=out", "--dp-audit-trials=2000")
    result.assert_outcomes(passed=1, failed=1)
    assert len(records(pytester)) == 2
    assert {record.risk for record in records(pytester).values()} == {0.9 * DEFAULT_RISK / 2}


KEPT = """
import os
from pathlib import Path
from guarantees.laws import kept

def here():
    return Path(os.environ["DPSGD_AUDIT_CACHE"]) in getattr(kept.LAWS.folder, "parents", ())

def test_inside(dp_audit):
    assert here()

def test_outside():
    assert not here()
"""


def test_laws_are_kept_for_the_tests_that_audit(pytester, tmp_path, monkeypatch):
    monkeypatch.setenv("DPSGD_AUDIT_CACHE", str(tmp_path / "kept"))
    run(pytester, KEPT).assert_outcomes(passed=2)


@pytest.mark.long
def test_nothing_of_ours_is_imported_when_no_test_audits(pytester):
    pytester.makepyfile("def test_nothing(): pass")
    ours = "{'jax', 'audit', 'mechanisms', 'distinguishers', 'guarantees'}"
    check = f"import sys, pytest; code = pytest.main(['-q']); assert not {ours} & set(sys.modules); sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", check], cwd=pytester.path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


CONFORMANCE = """
import jax
import jax.numpy as jnp
from audit.conformance import SubsampledGaussianConformance

class TestStep(SubsampledGaussianConformance):
    def make_step(self, *, rate, clip, noise_multiplier):
        def step(key, gradients):
            lengths = jnp.linalg.norm(gradients, axis=1, keepdims=True)
            clipped = jnp.nan_to_num(gradients / jnp.maximum(lengths / clip, 1.0))
            taken = jax.random.bernoulli(jax.random.fold_in(key, 0), rate, (len(gradients), 1))
            noise = NOISE * noise_multiplier * clip * jax.random.normal(jax.random.fold_in(key, 1), gradients[0].shape)
            return jnp.sum(taken * clipped, 0) + noise
        return step
"""


@pytest.mark.long
@pytest.mark.parametrize("noise", [1.0, 0.5])
def test_the_conformance_class_tells_a_right_step_from_one_with_half_the_noise(pytester, noise):
    pytester.makepyfile(CONFORMANCE.replace("NOISE", str(noise)))
    wrong = noise != 1.0
    result = pytester.runpytest_inprocess("-k", "dense or a_step_is" if wrong else "dense", "--dp-audit-trials=2000")
    assert result.parseoutcomes() == ({"failed": 2, "deselected": 18} if wrong else {"passed": 1, "deselected": 19})
    if wrong:
        result.stdout.fnmatch_lines(["*dense*: violation (p-value *", "not the mechanism stated (p-value *"])


def test_trainings_are_looked_at_only_where_there_is_one(pytester):
    pytester.makepyfile(CONFORMANCE.replace("NOISE", "1.0"))
    result = pytester.runpytest_inprocess("-k", "a_training", "-rs")
    result.assert_outcomes(skipped=6, deselected=14)
    result.stdout.fnmatch_lines(["*TestStep does not define make_training: reuse between steps was not looked for*"])


def test_a_conformance_class_without_a_step_says_so(pytester):
    pytester.makepyfile(
        "from audit.conformance import SubsampledGaussianConformance\n"
        "class TestEmpty(SubsampledGaussianConformance): pass\n"
    )
    result = pytester.runpytest_inprocess("-k", "dense")
    result.stdout.fnmatch_lines(["*TestEmpty must define make_step(self, *, rate, clip, noise_multiplier).*"])


def example(pytester, variant, *options):
    shutil.copytree(EXAMPLE, pytester.path, dirs_exist_ok=True)
    if variant != "right":
        shutil.copy(EXAMPLE / "broken" / f"{variant}.py", pytester.path / "tinydp.py")
    return pytester.runpytest_inprocess(*options)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("variant", ["clips_coordinates", "right"])
def test_the_sample_repository_is_green_when_right_and_red_when_broken(pytester, variant):
    result = example(pytester, variant, "-k", "clipped")
    result.assert_outcomes(**({"passed": 1} if variant == "right" else {"failed": 1}), deselected=1)
    assert json.loads((pytester.path / "audit-report" / "records.json").read_text())["records"]


@pytest.mark.long
@pytest.mark.parametrize("variant", ["right", *VARIANTS])
def test_the_whole_sample_repository(pytester, variant):
    failing = {"right": 0, "divides_by_the_batch": 2, "noise_by_variance": 2, "clips_coordinates": 1}[variant]
    outcomes = example(pytester, variant).parseoutcomes()
    assert outcomes.get("failed", 0) == failing


def test_the_inner_sessions_leave_jax_alone():
    assert not jax.config.jax_enable_x64


@pytest.mark.long
def test_a_green_session_says_once_what_it_looked_at(pytester):
    green = """
def test_right(dp_audit):
    dp_audit(right, PAIR, First(), claim=CLAIM, trials=400)
    dp_audit(right, PAIR, First(), claim=CLAIM, trials=400)

def test_replay(dp_explain):
    dp_explain(right, PAIR, claim=CLAIM)
"""
    result = run(pytester, green)
    result.assert_outcomes(passed=2)
    out = result.stdout.str()
    assert out.count("dp-audit: 2 audits, no violation found") == 1
    file = "test_a_green_session_says_once_what_it_looked_at.py"
    assert f"looked at: right in {file}::test_right, right in {file}::test_right #2; on 1 pair of neighbours " in out
    assert "(zero_out), 800 trials in all, by the scores first." in out
    assert f"replayed by dp_explain, without a trial: {file}::test_replay." in out
    assert "not looked at: other data and other neighbours" in out


@pytest.mark.parametrize("audited", [True, False])
def test_what_dp_explain_finds_stands_in_the_summary_and_on_the_page(pytester, audited):
    """The page said '1 of 2 audits leaks more than promised' where a test of dp_explain had failed, too."""
    lines = """
def test_lines(dp_explain):
    dp_explain(lambda key, rows: rows.sum(axis=0), PAIR, claim=CLAIM)
"""
    audit_of_it = "def test_right(dp_audit):\n    dp_audit(right, PAIR, First(), claim=CLAIM, trials=400)\n"
    result = run(pytester, lines + audit_of_it * audited, "--dp-audit-report=out")
    result.assert_outcomes(failed=1, passed=int(audited))
    said = "test_what_dp_explain_finds_stands_in_the_summary_and_on_the_page.py::test_lines: released_without_noise at "
    out, page = result.stdout.str(), (pytester.path / "out" / "index.html").read_text()
    assert out.count("dp-audit: lines look wrong in 1 test of dp_explain, which draws no trials:\n  " + said) == 1
    assert page.count(f"<li>{said}") == 1
    assert len(records(pytester)) == audited


def test_a_report_folder_that_cannot_be_written_is_refused_at_the_start(pytester):
    pytester.makefile(".txt", taken="")
    result = run(pytester, BOTH, "--dp-audit-report=taken.txt")
    assert result.ret == 4
    assert "--dp-audit-report=taken.txt: cannot be written to" in result.stderr.str()
