"""`run --keep-going`: an audit that fails is a verdict of its own in every report, and ends nothing."""

import dataclasses
import importlib.util
import json
from xml.etree import ElementTree

import pytest

from audit.cli import main
from audit.record.compare import compare
from audit.record.read import SchemaError
from audit.record.stored import from_json, load_records, save_records
from audit.report.formats import github_annotations
from audit.report.story import promised_epsilon
from audit.suites.exit_codes import exit_code
from audit.suites.read import parse_suite
from audit.suites.run import run_suite
from audit.suites.suite import SuiteError
from audit.suites.unrun import unrun
from audit.verify.procedure import verify

FAILING = """
[[audit]]
name = "silent program"
mechanism = { kind = "command_step", command = ["sh", "-c", "echo 'no such library' >&2; exit 3"] }
neighbours = { kind = "worst_case_pair", records = 2, dimension = 2, clip = 1.0 }
claim = { kind = "gaussian", mu = 1.0 }
EXPECT
"""
SUITE = f"""
trials = 200
risk = 0.04
{FAILING}
[[audit]]
name = "right"
neighbours = "scalar_pair"
distinguisher = "likelihood_ratio"
mechanism = {{ kind = "gaussian_mechanism", noise_multiplier = 1.0 }}
claim = {{ kind = "gaussian", mu = 1.0 }}
expect = "inconclusive"
"""
LIBRARY = """
[[audit]]
name = "not installed"
mechanism = { kind = "jax_privacy_step", noise_multiplier = 1.0, clip = 1.0, rate = 0.5 }
neighbours = { kind = "worst_case_pair", records = 2, dimension = 2, clip = 1.0 }
claim = "jax_privacy_claim"
"""
NOTHING_SAID = "\ntrials = 200\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of three audits of which two cannot run, with all its files."""
    place = tmp_path_factory.mktemp("kept")
    (place / "suite.toml").write_text(SUITE.replace("EXPECT", "") + LIBRARY)
    files = {f"--{each}": str(place / each) for each in ("junit", "markdown", "sarif")}
    words = [word for pair in files.items() for word in pair]
    with pytest.MonkeyPatch.context() as patch:
        find = importlib.util.find_spec
        patch.setattr(importlib.util, "find_spec", lambda name: None if name == "jax_privacy" else find(name))
        code = main(["run", str(place / "suite.toml"), "--out", str(place / "out"), "--keep-going", "--quiet", *words])
    assert code == 2
    return place


@pytest.fixture(scope="module")
def records(folder):
    return load_records(folder / "out" / "records.json")


def test_one_failing_audit_does_not_end_the_suite(records):
    assert [record.verdict for record in records] == ["could_not_run", "inconclusive", "could_not_run"]
    failed, ran, missing = records
    assert "exit code 3" in failed.reason
    assert "no such library" in failed.reason
    assert "needs jax_privacy, which is not installed" in missing.reason
    assert ran.trials == 200
    # a part of the risk that nobody spends is not given to the others
    assert [record.risk for record in records] == pytest.approx([0.04 / 3] * 3)
    assert (failed.epsilon(1e-5), failed.delta(0.0), failed.mu, failed.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_without_keep_going_it_ends_at_the_first(tmp_path, capsys):
    (tmp_path / "suite.toml").write_text(SUITE.replace("EXPECT", ""))
    assert main(["run", str(tmp_path / "suite.toml"), "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert "audit 'silent program' failed" in capsys.readouterr().err
    assert not (tmp_path / "out" / "records.json").exists()


def test_an_audit_that_is_expected_not_to_run_is_no_surprise(tmp_path, capsys):
    text = NOTHING_SAID + FAILING.replace("EXPECT", 'expect = "could_not_run"')
    (tmp_path / "suite.toml").write_text(text)
    assert main(["run", str(tmp_path / "suite.toml"), "--out", str(tmp_path / "out"), "--keep-going"]) == 0
    printed = capsys.readouterr().out
    assert "could not run" in printed
    assert "no such library" in printed
    assert "no audit could run" in printed


def test_a_quiet_run_still_says_what_could_not_run(tmp_path, capsys):
    (tmp_path / "suite.toml").write_text(NOTHING_SAID + FAILING.replace("EXPECT", ""))
    assert main(["run", str(tmp_path / "suite.toml"), "--out", str(tmp_path / "out"), "--keep-going", "--quiet"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "error: audit 'silent program' could not run: " in said.err
    assert "no such library" in said.err


def test_a_wrong_word_ends_the_suite_even_so(tmp_path, capsys):
    (tmp_path / "suite.toml").write_text(SUITE.replace("EXPECT", "").replace("gaussian_mechanism", "gausian_mechanism"))
    assert main(["run", str(tmp_path / "suite.toml"), "--out", str(tmp_path / "out"), "--keep-going"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert not (tmp_path / "out" / "records.json").exists()


REFUSED = """
trials = 200
[defaults]
neighbours = { kind = "worst_case_pair", records = 2, dimension = 2, clip = 1.0 }
claim = { kind = "gaussian", mu = 1.0 }
[[audit]]
name = "its pair"
mechanism = { kind = "many_rounds", simulator = "collapsed", sampler = { kind = "shuffle", batch_size = 1 } }
distinguisher = "likelihood_ratio"
parameters = { noise_multiplier = 1.0, clip = 1.0 }
[[audit]]
name = "its value"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = -1.0 }
[[audit]]
name = "its claim's neighbours"
mechanism = { kind = "one_round", noise_multiplier = 1.0, clip = 1.0, rate = 1.0, normalise_by = "none" }
claim = { kind = "epsilon_delta", epsilon = 1.0, delta = 1e-5, relation = "substitution" }
[[audit]]
name = "its module"
mechanism = { function = "raises_at_import:step" }
[[audit]]
name = "its function"
mechanism = { function = "no_such_module:step" }
"""


def test_an_audit_that_fails_while_it_is_prepared_ends_nothing_either(tmp_path, monkeypatch):
    """What was refused before the first trial ended the suite, but for a missing library."""
    (tmp_path / "raises_at_import.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path))
    suite = parse_suite(REFUSED, "suite.toml")
    events: list[str] = []
    records = run_suite(suite, keep_going=True, told=events.append, started=lambda spec: events.append(spec.name))
    assert {record.verdict for record in records} == {"could_not_run"}
    first = events.index("its pair")
    assert any("noise_multiplier must be" in said for said in events[:first])
    why = {record.name: record.reason for record in records}
    assert "the collapsed simulator of many rounds needs" in why["its pair"]
    assert "noise_multiplier must be" in why["its value"]
    assert "the claim is for substitution neighbours" in why["its claim's neighbours"]
    assert "failed at " in why["its module"]
    assert "raises_at_import.py:1 (RuntimeError: no licence)" in why["its module"]
    assert "no_such_module" in why["its function"]
    with pytest.raises(SuiteError, match=r"suite.toml:\d+: distinguisher 'likelihood_ratio' of audit 'its pair'"):
        run_suite(suite)


def test_exit_codes_name_the_worst_of_all(records):
    failed, ran, _ = records
    broken = dataclasses.replace(ran, verdict="violation")
    unsure = dataclasses.replace(ran, expect="no_violation_found")
    as_wanted = dataclasses.replace(failed, expect="could_not_run")
    ran_after_all = dataclasses.replace(ran, expect="could_not_run", verdict="no_violation_found")
    assert exit_code((failed, broken)) == 1
    assert exit_code((failed, unsure)) == 2
    assert exit_code((as_wanted, unsure)) == 3
    assert exit_code((as_wanted, ran)) == 0
    assert exit_code((ran_after_all,)) == 1


def test_nothing_is_claimed_by_a_claim_that_could_not_be_built(folder, records):
    written = json.loads((folder / "out" / "records.json").read_text())["records"]
    (claim,) = (record["claim"] for record in written if record["name"] == "not installed")
    assert (claim["source"], claim["epsilon"]) == ("not built", None)
    (record,) = (record for record in records if record.name == "not installed")
    assert record.claim.epsilon_at(record.report_delta) == "not known (the claim could not be built)"


def test_a_claim_of_ours_is_known_where_the_code_is_not_installed():
    """'promised epsilon not known' stood where the suite said it."""
    named = LIBRARY.replace('"jax_privacy_claim"', '{ kind = "gaussian", mu = 0.5 }')
    (spec,) = parse_suite(f"trials = 100\n{named}", "suite.toml").audits
    record = unrun(spec, None, why="it is not installed.", risk=0.05, key="", environment={})
    assert promised_epsilon((record,)) == "2"
    assert record.claim.parameters == {"mu": 0.5}


def test_every_report_has_it(folder, capsys):
    page = (folder / "out" / "index.html").read_text()
    assert '<option value="could_not_run">' in page
    assert "CommandError: the program" in page
    assert "none of 200 planned" in page
    text = (folder / "markdown").read_text()
    assert "| silent program | gaussian(mu=1.0) | – (4.38) | – (0.383) | could not run | **no** |" in text
    assert "| not installed | jax_privacy_claim() | – (–) | – (–) | could not run | **no** |" in text
    assert "**silent program**: could not run; " in text
    suite = ElementTree.fromstring((folder / "junit").read_text())[0]
    assert (suite.get("errors"), suite.get("failures")) == ("2", "0")
    message = suite[0].find("error").get("message")
    assert message.startswith("could not run: ")
    assert "on the side 'without' of command_step" in message
    assert (suite[0].get("file"), suite[0].get("line")) == (str(folder / "suite.toml"), "5")
    (run,) = json.loads((folder / "sarif").read_text())["runs"]
    assert run["results"] == []
    (told,) = run["invocations"]
    assert not told["executionSuccessful"]
    (place,) = (each["physicalLocation"] for each in told["toolExecutionNotifications"][0]["locations"])
    assert place["artifactLocation"]["uri"].endswith("/suite.toml")
    assert place["region"] == {"startLine": 5}
    found = {}
    for kind in ("text", "latex", "csv", "statement", "model-card", "bibtex"):
        assert main(["report", str(folder / "out" / "records.json"), "--format", kind]) == 0
        found[kind] = capsys.readouterr().out
    assert "2 could not run" in found["text"]
    name, numbers = found["latex"].partition("silent program")[2].splitlines()[:2]
    assert "strut" in name
    assert numbers == r"\enspace -- & -- & -- & -- & -- & could not run & (1) \\"
    assert "Could not be run: silent program; not installed." in found["latex"]
    assert "silent program,could_not_run,no_violation_found,0," in found["csv"]
    assert "silent program: could not be audited against a Gaussian mechanism with mu 1." in found["statement"]
    assert "| verdict | could not run |" in found["model-card"]


@pytest.mark.parametrize(
    ("reason", "place"),
    [
        (
            "'step' failed on the side 'with' at my steps/own.py:12: KeyError: 3.",
            "file=my steps/own.py,line=12",
        ),
        ("the worker ended. ValueError: no (at src/own.py:7).", "file=src/own.py,line=7"),
        ("it takes too long, at most 3:00 are allowed.", "file=suites/a.toml,line=4"),
    ],
)
def test_an_annotation_points_at_the_code_that_failed_or_at_the_suites_line(records, reason, place):
    failed = dataclasses.replace(records[0], reason=reason)
    (line,) = github_annotations((failed,), places={failed.name: "suites/a.toml:4"})
    assert line.startswith(f"::error {place},title=silent program::")


@pytest.mark.long
def test_figures_are_of_what_ran(folder, capsys):
    out = folder / "figures"
    source = str(folder / "out" / "records.json")
    assert main(["report", source, "--figures", "svg", "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["audit-2.svg"]
    assert main(["plot", source, "--x", "trials", "--out", str(out / "sweep.svg"), "--json"]) == 0
    assert [point["audit"] for point in json.loads(capsys.readouterr().out.splitlines()[-1])["points"]] == ["right"]


def test_it_is_not_compared(records):
    failed, ran, _ = records
    now = dataclasses.replace(ran, name=failed.name)
    for old, new, when in ((failed, now, "before"), (now, failed, "now")):
        (change,) = compare((old,), (new,), risk=0.01)
        assert change.state == "not_compared"
        assert change.reason.startswith(f"it could not run {when}: ")
        assert "on the side 'without' of command_step" in change.reason
    (change,) = compare((now,), (failed,), risk=0.01)
    assert (change.new_verdict, change.new_epsilon) == ("could_not_run", None)


def test_what_is_expected_not_to_run_before_and_now_is_compared(records, tmp_path, capsys):
    """A suite with one such audit could never end with 0."""
    expected = dataclasses.replace(records[0], expect="could_not_run")
    (change,) = compare((expected,), (expected,), risk=0.01)
    assert change.state == "no_change_shown"
    assert change.reason.startswith("it could not run before and now, as expected: ")
    files = [str(tmp_path / name) for name in ("old.json", "new.json")]
    for file in files:
        save_records([expected], file)
    assert main(["compare", *files]) == 0
    assert "No audit was compared" not in capsys.readouterr().out
    assert compare((records[0],), (expected,), risk=0.01)[0].state == "not_compared"


def test_verify_says_that_nothing_was_drawn(records):
    found = verify(records)
    assert [check.state for check in found.checks if check.audit == "silent program"] == ["right"]
    assert not found.any("wrong")
    told = {each.key for each in found.primary if each.audit == "silent program"}
    assert {"reason", "mechanism", "claim"} <= told
    assert "p_value" not in told


@pytest.mark.parametrize("change", [{"risk": 0.01}, {"key": "threefry2x32:0,1"}, {"steps": 3}])
def test_verify_finds_what_was_changed(records, change):
    forged = dataclasses.replace(records[0], **change)
    assert any(check.state == "wrong" for check in verify((forged,)).checks)


@pytest.mark.parametrize("key", ["trials", "points", "grids"])
def test_a_record_with_trials_cannot_be_called_unrun(records, key):
    """Nobody hides a violation by its verdict's name alone."""
    data = {**records[0].to_json(), key: records[1].to_json()[key]}
    with pytest.raises(SchemaError, match=rf"{key} must be .* in an audit that could not run"):
        from_json(data)


def test_a_second_run_keeps_what_is_finished(folder, capsys, monkeypatch):
    """After mending, the same command draws only what could not run."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jax_privacy" else find(name))
    assert main(["run", str(folder / "suite.toml"), "--out", str(folder / "out"), "--keep-going"]) == 2
    assert "'right': reused" in capsys.readouterr().err
