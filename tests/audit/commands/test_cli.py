"""The command line, as a user calls it; slow parts run once and in process."""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from audit import cli
from audit.record.stored import load_records
from guarantees.numerics.rounding import at_least

SUITE = """
risk = 0.01
trials = 2000
[defaults]
neighbours = { kind = "scalar_pair" }
distinguisher = "likelihood_ratio"
[[audit]]
name = "kept"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
claim = { kind = "gaussian", mu = 1.0 }
[[audit]]
name = "broken"
expect = "EXPECT"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 0.5 }
claim = { kind = "gaussian", mu = 1.0 }
"""
STORY = ["proven", "to do", "promised", "audited", "not looked at"]


def run_command(*words):
    return cli.main([str(word) for word in words])


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "suite.toml"
    path.write_text(SUITE.replace("EXPECT", "violation"))
    return path


@pytest.fixture(scope="module")
def report(suite, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    words = ["run", suite, "--out", out, "--junit", out / "junit.xml", "--markdown", out / "summary.md"]
    assert run_command(*words) == 0
    return out


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom audit import cli\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'jax', 'numpy', 'scipy', 'statsmodels', 'matplotlib', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "COMMAND" in done.stdout


def test_a_warning_of_ours_shows_no_line_of_ours(monkeypatch):
    shown = []

    def execute(arguments):
        for file in (cli.__file__, "theirs.py"):
            shown.append(warnings.formatwarning("a norm differs.", UserWarning, file, 7))
        return 0

    monkeypatch.setattr(cli, "_execute", execute)
    assert cli.main(["list"]) == 0
    assert shown == ["warning: a norm differs.\n", "theirs.py:7: UserWarning: a norm differs.\n"]
    assert "cli.py:7" in warnings.formatwarning("a norm differs.", UserWarning, cli.__file__, 7)


def test_run_writes_records_and_a_page_and_ends_green(report):
    kept, broken = load_records(report / "records.json")
    assert (kept.verdict, broken.verdict) == ("no_violation_found", "violation")
    assert kept.risk == broken.risk == pytest.approx(0.005)
    page = (report / "index.html").read_text()
    assert page.count("<figure") == 6
    assert "no violation found" in page
    assert "src=" not in page
    assert not (report / ".resume").exists()


def test_ci_files(report):
    assert "<failure" not in (report / "junit.xml").read_text()
    summary = (report / "summary.md").read_text()
    assert "every verdict as expected" in summary
    assert len(summary.splitlines()) <= 12


def test_an_unexpected_violation_ends_with_1_and_speaks_github(suite, tmp_path, capsys, monkeypatch):
    unpinned = tmp_path / "suite.toml"
    unpinned.write_text(SUITE.replace("EXPECT", "no_violation_found"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    assert run_command("run", unpinned, "--out", tmp_path / "out") == 1
    said = capsys.readouterr()
    assert re.search(r"::error file=.*suite\.toml,line=\d+,title=broken::", said.err)
    assert "\x1b" not in said.out + said.err
    told = [line.split("  ")[0] for line in said.out.splitlines() if not line.startswith(("┃", "│", " "))]
    assert [word for word in told if word in STORY] == STORY
    assert "1 not as expected" in (tmp_path / "step.md").read_text()


@pytest.mark.long
def test_too_few_trials_end_with_3(suite, tmp_path, capsys):
    kept = tmp_path / "kept.toml"
    kept.write_text(SUITE.split('[[audit]]\nname = "broken"')[0])
    assert run_command("run", kept, "--trials", 10, "--out", tmp_path / "out") == 3
    assert "trials would be enough" in capsys.readouterr().out


def test_json_seed_trials_confidence_and_budget(suite, tmp_path, capsys):
    words = ["run", suite, "--out", tmp_path, "--json", "--seed", 7, "--trials", 1600, "--confidence", 0.99]
    assert run_command(*words, "--time-budget", "5m", "--quiet") == 0
    said = capsys.readouterr()
    assert said.err == ""
    first, second = json.loads(said.out)
    assert first["trials"] == second["trials"] == 1600
    assert first["risk"] == 0.005
    assert first["key"] != second["key"]


@pytest.mark.long
def test_an_interrupted_run_continues_and_loses_nothing(suite, tmp_path, monkeypatch, capsys):
    from audit.suites import run as suite_module

    whole = tmp_path / "whole"
    assert run_command("run", suite, "--out", whole) == 0
    original, calls = suite_module.run_audit, []

    def interrupted(*args, **options):
        calls.append(options["name"])
        if options["name"] == "broken":
            raise KeyboardInterrupt
        return original(*args, **options)

    monkeypatch.setattr(suite_module, "run_audit", interrupted)
    out = tmp_path / "out"
    assert run_command("run", suite, "--out", out) == cli.INTERRUPTED
    assert "continues where it stopped" in capsys.readouterr().err
    calls.clear()
    monkeypatch.setattr(suite_module, "run_audit", lambda *a, **o: calls.append(o["name"]) or original(*a, **o))
    assert run_command("run", suite, "--out", out) == 0
    assert calls == ["broken"]
    pairs = zip(load_records(out / "records.json"), load_records(whole / "records.json"), strict=True)
    assert all(a.points == b.points and a.grids == b.grids for a, b in pairs)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gaussian_mechanism", "gausian_mechanism", "unknown mechanism 'gausian_mechanism'.*did you mean"),
        ("noise_multiplier = 1.0", "noise_multiplier = 0.0", "noise_multiplier must be"),
        ("noise_multiplier = 1.0", "noise = 1.0", "unknown key 'noise'.*did you mean 'noise_multiplier'"),
        (", noise_multiplier = 1.0", "", "needs 'noise_multiplier'"),
        ("mechanism = { kind", "mechanism = { step = 'no.such:thing', kind", "unknown key 'step'"),
    ],
)
def test_a_wrong_suite_ends_with_2_before_anything_runs(tmp_path, capsys, old, new, message):
    import re

    path = tmp_path / "suite.toml"
    path.write_text(SUITE.replace(old, new, 1).replace("EXPECT", "violation"))
    assert run_command("run", path, "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert str(path) in error


def test_list_names_everything_with_parameters(capsys):
    assert run_command("list") == 0
    text = capsys.readouterr().out
    for word in ("one_round(normalise_by, rate, clip, noise_multiplier)", "likelihood_ratio", "gaussian(mu", "split("):
        assert word in text
    assert run_command("list", "--json") == 0
    assert "worst_case_pair" in json.loads(capsys.readouterr().out)["neighbours"]


def test_bound_says_what_proves_more_than_the_threshold_does(tmp_path, capsys):
    """It said 'at least 2.25, at the threshold 0.75', which proved 1.12: it came from the band."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.normal(size=2000))
    np.save(tmp_path / "b.npy", rng.normal(size=2000) + 1.5)
    words = ["bound", "--without", tmp_path / "a.npy", "--with", tmp_path / "b.npy", "--threshold", 0.75]
    assert run_command(*words, "--json") == 0
    numbers = json.loads(capsys.readouterr().out)
    own = next(number["at_least"] for number in numbers["numbers"] if number["name"] == "epsilon")
    assert numbers["epsilon"] > own + 0.5
    assert run_command(*words) == 0
    said = capsys.readouterr().out
    shown = re.search(r"\(by the band over all thresholds; its own test: ([\d.]+)\)$", said.splitlines()[0])
    assert shown is not None
    assert float(shown[1]) <= own
    assert "at the threshold 0.75; by the band over all thresholds, where it says so." in said
    assert run_command(*words, "--target", "epsilon") == 0
    assert "by the band" not in capsys.readouterr().out


def test_bound_reads_scores_and_names_the_conditions(tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.normal(size=800))
    np.save(tmp_path / "b.npy", rng.normal(size=800) + 2)
    words = ["bound", "--without", tmp_path / "a.npy", "--with", tmp_path / "b.npy", "--delta", 1e-5]
    assert run_command(*words) == 0
    plain = capsys.readouterr()
    assert "Valid if you can vouch" in plain.out
    assert plain.out.rstrip().endswith("were not tried out on these scores.")
    assert "(limits on each error rate alone: " in plain.out
    assert "Report epsilon or delta: by\ndelta, a guess is right at least " in plain.out
    proven, most = (
        float(re.search(said, plain.out)[1]) for said in (r"at least (\S+)", r"can prove at most epsilon (\S+);")
    )
    assert 0 < proven < most
    assert "share of the risk" not in plain.out
    assert "same scores" not in plain.err
    assert run_command(*words, "--claim", "gaussian(mu=1)") == 1
    assert "The verdict on the claim has a share of the risk" in capsys.readouterr().out
    assert run_command("bound", "--without", tmp_path / "a.npy", "--with", tmp_path / "a.npy") == 0
    assert "--without and --with hold the same scores" in capsys.readouterr().err
    assert run_command(*words, "--claim", "gaussian(mu=1)", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == told["judgement"]["verdict"] == "violation"
    assert told["risk"] == 0.05
    assert run_command(*words, "--claim", "gausian(mu=1)") == 2
    assert "did you mean 'gaussian'" in capsys.readouterr().err
    assert run_command(*words, "--claim", "zCDP(rho=1)") == 2
    assert "did you mean 'zcdp'" in capsys.readouterr().err
    assert run_command("bound", "--without", tmp_path / "none.npy", "--with", tmp_path / "b.npy") == 2


def test_report_turns_records_into_other_formats(report, tmp_path, capsys):
    records = report / "records.json"
    assert run_command("report", records, "--format", "markdown") == 0
    assert "| broken |" in capsys.readouterr().out
    assert run_command("report", records, "--format", "junit", "--out", tmp_path / "j.xml") == 0
    assert 'tests="2"' in (tmp_path / "j.xml").read_text()
    assert run_command("report", records, "--out", tmp_path / "page") == 0
    assert Path(tmp_path / "page" / "index.html").exists()
    assert run_command("report", records, "--out", tmp_path / "one.html") == 0
    assert (tmp_path / "one.html").read_text() == (tmp_path / "page" / "index.html").read_text()
    assert run_command("report", tmp_path / "missing.json") == 2


def test_every_result_of_sarif_has_a_place(report, tmp_path, capsys):
    data = json.loads((report / "records.json").read_text())
    for record in data["records"]:
        record["expect"] = "no_violation_found"
    (tmp_path / "surprises.json").write_text(json.dumps(data))
    assert run_command("report", tmp_path / "surprises.json", "--format", "sarif") == 0
    (broken,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert "surprises.json" in broken["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]


def test_reports_have_the_title_of_the_suite_unless_another_is_given(report, tmp_path, capsys):
    data = json.loads((report / "records.json").read_text())
    titled, untitled, odd = tmp_path / "titled.json", tmp_path / "untitled.json", tmp_path / "odd.json"
    titled.write_text(json.dumps(data | {"title": "Softmax step"}))
    untitled.write_text(json.dumps({key: data[key] for key in ("schema", "records")}))
    odd.write_text(json.dumps(data | {"title": 3}))
    for records, more, title in (
        ((titled,), (), "Softmax step"),
        ((titled,), ("--title", "Mine"), "Mine"),
        ((untitled,), (), "Privacy audit"),
        ((titled, untitled), (), "Privacy audit"),
    ):
        assert run_command("report", *records, "--format", "model-card", *more) == 0
        assert f"## Differential privacy: {title}\n" in capsys.readouterr().out
    assert data["title"] == "Privacy audit of suite.toml"  # by its file's name
    assert run_command("report", odd) == 2
    assert "title must be a string, got 3" in capsys.readouterr().err


def test_claim_prints_every_way_of_reporting(tmp_path, capsys):
    plot = tmp_path / "c.png"
    assert run_command("claim", "gaussian(mu=1)", "--rate", 0.05, "--noise-multiplier", 10, "--plot", plot) == 0
    text = capsys.readouterr().out
    assert "4.378" in text
    assert "mu on alpha [1e-06, 1-1e-06]" in text
    assert plot.stat().st_size > 1000
    words = ["claim", "--rate", 0.05, "--noise-multiplier", 10, "--records", 4, "--dimension", 100, "--json"]
    assert run_command(*words, "--normalise-by", "expected_batch") == 0
    assert json.loads(capsys.readouterr().out)[0]["total_variation"] == pytest.approx(0.8842946, abs=2e-6)
    # the short form of before
    assert run_command("claim", "--rate", 0.05, "--noise", 10, "--json") == 0
    assert run_command("claim", "--rate", 0.05, "--noise", 10, "--normalise-by", "expected_batch") == 2
    assert run_command("claim", "gauss") == 2


def test_many_steps_are_accounted_for_without_the_extra_too(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    words = ["claim", "--rate", 0.1, "--noise-multiplier", 2, "--steps", 10, "--delta", 1e-5]
    assert run_command(*words, "--json") == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert "accountant='certified'" in told["claim"]
    assert run_command("claim", "claim_from_event(event='GaussianDpEvent(2.0)')") == 2
    said = capsys.readouterr().err
    assert "`pip install '.[accountants]'` in a clone" in said
    assert "certified" not in said


@pytest.mark.long
def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m audit.cli list | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "mechanism\n"
    assert done.stderr == ""


@pytest.mark.parametrize(("records", "delta", "said"), [(10, 0.3, (True, True)), (12, 1e-5, (False, False))])
def test_a_delta_that_protects_nobody_and_a_last_batch_that_is_smaller_are_said(capsys, records, delta, said):
    """'It holds' was all that was said of delta 0.3 for ten records."""
    words = ["claim", "--batch", 4, "--records", records, "--noise-multiplier", 1, "--stated", 5, "--delta", delta]
    assert run_command(*words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert ("publishing one record at random would keep that promise" in told) == said[0]
    assert ("Opacus samples at 1 / len(loader) = 0.3333" in told) == said[1]


@pytest.mark.parametrize("claim", [[], ["--claim", "gaussian(mu=0.5)"]])
def test_bound_writes_a_table_of_what_it_prints(tmp_path, capsys, claim):
    """A colleague's outputs could not be shown: no report reads what `bound` finds."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", np.repeat(rng.normal(size=(100, 3)), 4, axis=0))
    np.save(tmp_path / "b.npy", rng.normal(size=(400, 3)) + 2.0)
    words = ["bound", "--without", tmp_path / "a.npy", "--with", tmp_path / "b.npy", *claim]
    run_command(*words, "--markdown", tmp_path / "card.md", "--json")
    told, card = capsys.readouterr(), (tmp_path / "card.md").read_text()
    assert "300 of the 400 trials without the record are copies of others" in told.err
    for word in (
        f"at least {at_least(json.loads(told.out)['epsilon'])} |",
        "are copies of others",
        "266 others learned a score" if claim else "133 and 133 others",
    ):
        assert word in card
    assert ("| verdict | violation |" in card) == bool(claim)


def test_bound_says_where_its_p_value_cannot_be_smaller(tmp_path, capsys):
    """Scores turned round: no band speaks, and the joint test adds its gamma to every p-value."""
    draw = np.random.default_rng(0).normal
    for name, mean in (("a", 3.0), ("b", 0.0)):
        np.save(tmp_path / f"{name}.npy", draw(mean, 1.0, 400))
    words = ["bound", "--without", tmp_path / "a.npy", "--with", tmp_path / "b.npy", "--claim", "gaussian(mu=0.5)"]
    assert run_command(*words) == 1
    text = capsys.readouterr().out
    assert text.startswith("verdict: violation (p-value 0.001, the smallest that its test gives at this confidence)")
