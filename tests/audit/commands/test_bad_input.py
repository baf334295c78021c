"""Whatever is wrong with a file or a number ends in one line that says what to do, before any audit runs."""

import json
import os
import re

import jax
import numpy as np
import pytest
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.cli import main
from audit.record.files import FileError, require_writable, write_whole

SUITE = """
[[audit]]
name = "toy"
trials = 40
mechanism = {{ {step} }}
neighbours = {{ function = "toys:PAIR" }}
distinguisher = {{ function = "toys:First" }}
claim = {{ kind = "gaussian", mu = 1.0 }}
"""


@pytest.fixture
def told(capsys):
    """Run a command, expect exit code 2 and give the last line that it said."""

    def run(*words):
        assert main([str(word) for word in words]) == 2
        err = capsys.readouterr().err
        assert "Traceback" not in err
        return err.strip().splitlines()[-1]

    return run


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("scores"), np.random.default_rng(0)
    sides = {"a": rng.normal(size=400), "b": rng.normal(2.0, size=400)}
    for name, side in sides.items():
        np.save(folder / f"{name}.npy", side)
        np.save(folder / f"{name}_column.npy", side[:, None])
        np.savez(folder / f"{name}.npz", scores=side)
        np.savez(folder / f"{name}_two.npz", scores=side, others=side)
        rows = "\n".join(f"{i},{value!r}" for i, value in enumerate(side.tolist()))
        (folder / f"{name}.csv").write_text("trial,score\n" + rows)
        (folder / f"{name}.txt").write_text("\n".join(map(repr, side.tolist())))
    np.save(folder / "complex.npy", sides["a"] * 1j)
    np.save(folder / "nan.npy", np.append(sides["a"], np.nan))
    np.save(folder / "inf.npy", np.concatenate([sides["b"], [np.inf, -np.inf]]))
    (folder / "empty.npy").write_bytes(b"")
    (folder / "odd.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr'")
    (folder / "odd.npz").write_bytes(b"PK\x03\x04junk")
    (folder / "row.txt").write_text(" ".join(map(repr, sides["a"].tolist())))
    (folder / "a.json").write_text(json.dumps(sides["a"].tolist()))
    np.save(folder / "objects.npy", np.array([1, "two", None], dtype=object))
    (folder / "words.csv").write_text("score\n1\n2\nthree\n4\n")
    both = zip(*(side.tolist() for side in sides.values()), strict=True)
    members = [f"{i},{side},{value!r}" for i, trial in enumerate(both) for side, value in enumerate(trial)]
    (folder / "long.csv").write_text("\n".join(["trial,member,score", *members]))
    np.save(folder / "outputs.npy", rng.normal(size=(200, 5)))
    np.save(folder / "more.npy", rng.normal(2.0, size=(200, 5)))
    for name, wrong in (("nan", np.nan), ("inf", np.inf)):
        odd = np.ones((200, 5))
        odd[7, 1] = wrong
        np.save(folder / f"{name}_outputs.npy", odd)
    (folder / "nan.csv").write_text("score\n1\nnan\n3\n4\n")
    tables = {name: np.load(folder / f"{name}.npy").tolist() for name in ("outputs", "more")}
    for name, rows in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(",".join(map(repr, row)) for row in rows))
    members = [[side, *row] for side, rows in enumerate(tables.values()) for row in rows]
    (folder / "both.csv").write_text("\n".join(["member,a,b,c,d,e", *(",".join(map(repr, row)) for row in members)]))
    return folder


def bound(folder, without, with_record, *more):
    return ["bound", "--without", f"{folder}/{without}", "--with", f"{folder}/{with_record}", *more]


@pytest.mark.parametrize(
    "kind", ["{}.npy", "{}_column.npy", "{}.npz", "{}_two.npz:scores", "{}.csv:score", "{}.csv:1", "{}.txt"]
)
def test_scores_are_read_from_every_kind_of_file(scores, kind, capsys):
    assert main(bound(scores, kind.format("a"), kind.format("b"), "--threshold", "1")) == 0
    captured = capsys.readouterr()
    assert "epsilon at delta 1e-05:   at least" in captured.out
    assert captured.err == ""


def test_infinite_scores_are_scores(scores, capsys):
    assert main(bound(scores, "a.npy", "inf.npy")) == 0
    assert "402 scores" not in capsys.readouterr().err
    exact = audit.from_scores(np.r_[np.zeros(50), -np.inf], np.r_[np.ones(50), np.inf], risk=0.05, thresholds=(0.5,))
    assert exact.tests[0].counts.false_alarms == exact.tests[0].counts.misses == 0


def test_one_table_may_hold_both_sides(scores, capsys):
    """Rows of trial, member and score are how many tools save them."""
    answers = []
    for sides in (("a.npy", "b.npy"), ("long.csv:score:member=0", "long.csv:score:member=1.0")):
        assert main([*bound(scores, *sides), "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]


def test_a_table_of_outputs_is_read_as_a_file_of_them(scores, capsys):
    """A table of several columns was refused, and nothing said that all of them are meant."""
    answers = []
    for sides in (
        ("outputs.npy", "more.npy"),
        ("outputs.csv:all", "more.csv:all"),
        ("both.csv:all:member=0", "both.csv:all:member=1"),
    ):
        assert main([*bound(scores, *sides), "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0]["learned_from"] == [66, 66]
    assert answers[0] == answers[1] == answers[2]


def test_files_of_outputs_learn_a_score(scores, told, capsys):
    assert main([*bound(scores, "outputs.npy", "more.npy"), "--claim", "gaussian(mu=1)"]) == 1
    assert "A third of the outputs (66 without the record, 66 with it) learned a score" in capsys.readouterr().out
    assert "--one-run reads one score per canary" in told(*bound(scores, "outputs.npy", "more.npy"), "--one-run")


def test_swapped_sides_are_told(scores, capsys):
    assert main(bound(scores, "b.npy", "a.npy", "--threshold", "1")) == 0
    assert "scores are higher without the record than with it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("complex.npy", "real numbers"),
        ("nan.npy", r"nan\.npy: row 400, counted from 0, has nan"),
        ("nan_outputs.npy", r"nan_outputs\.npy: row 7, counted from 0, has nan"),
        ("nan.csv", r"nan\.csv: row 3 has 'nan' where a number should be"),
        ("inf_outputs.npy", r"--without\[7\] is not finite"),
        ("empty.npy", "empty"),
        ("odd.npy", "not a .npy or .npz file"),
        ("odd.npz", "not a .npy or .npz file"),
        ("a_two.npz", "say which: .*a_two.npz:scores"),
        ("a.csv", "several columns.*a.csv:all if each row is an output"),
        ("row.txt", r"several columns in .*'7'\] and 392 more"),
        ("a.json", r"^(?!.*pickle).*plain array of numbers"),
        ("objects.npy", r"^(?!.*pickle).*plain array of numbers"),
        ("words.csv", "row 4 has 'three'"),
        ("nowhere.npy", "no such file"),
        ("", "a folder"),
        ("a.npy:scores:member=1", "only rows of a table have labels"),
        ("long.csv:score:member=2", "no row has member = '2', its only values are: 0, 1"),
        ("long.csv:score:group=1", "no column 'group'"),
    ],
)
def test_odd_scores_are_refused(scores, told, file, message):
    assert re.search(message, told(*bound(scores, file, "b.npy")))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rum"], "dpsgd-audit: COMMAND: there is no 'rum' (did you mean 'run'?), only run, "),
        (["run", "--trails", "5"], "dpsgd-audit run: '--trails' is not known here (did you mean '--trials'?); see `"),
        (
            ["report", "x.json", "--format", "latec"],
            "dpsgd-audit report: --format: there is no 'latec' (did you mean 'la",
        ),
    ],
)
def test_a_misspelt_word_of_the_command_line_is_one_line_with_the_right_one(words, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert capsys.readouterr().err.startswith(said)


def test_a_misspelt_file_is_answered_with_its_neighbour(told, tmp_path):
    (tmp_path / "suite.toml").write_text("{")
    assert told("run", tmp_path / "suite.tml").endswith("check the path (did you mean 'suite.toml'?).")
    assert told("run", tmp_path / "suite.toml").endswith("; records are read by `dpsgd-audit report`.")


def test_a_pipe_does_not_hang(scores, told, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "pipe" in told("bound", "--without", tmp_path / "pipe", "--with", scores / "b.npy")
    assert "not a plain file" in told("report", tmp_path / "pipe")


@pytest.mark.parametrize("delta", ["-0.1", "1", "nan"])
def test_a_delta_that_is_no_probability_is_refused(scores, told, delta):
    assert "--delta must lie in [0, 1)" in told(*bound(scores, "a.npy", "b.npy"), f"--delta={delta}")


def test_files_that_cannot_be_written_are_refused_before_the_run(told, tmp_path):
    suite = tmp_path / "s.toml"
    suite.write_text(SUITE.format(step='function = "toys:Shift", mu = 1.0'))
    (tmp_path / "file").write_text("")
    assert "cannot be" in told("run", suite, "--out", tmp_path / "file")
    assert "is a directory" in told("run", suite, "--out", tmp_path / "o", "--junit", tmp_path)
    assert "check the path" in told("run", suite, "--out", tmp_path / "o", "--markdown", tmp_path / "no" / "m.md")
    assert "is a directory" in told("run", tmp_path)
    assert "seed must be" in told("run", suite, "--out", tmp_path / "o", "--seed", 2**32)
    assert "2^62" in told("run", suite, "--out", tmp_path / "o", "--trials", 10**30)
    assert not (tmp_path / "o" / "records.json").exists()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("raise KeyError('layer')", r"importing function = .* failed at .*\.py:1 .KeyError: 'layer'."),
        ("raise ValueError('no GPU')", r"failed at .*\.py:1 .ValueError: no GPU.; fix the module"),
        ("def stop(key, dataset): pass", r"cannot import function = .*has no 'step' .did you mean 'stop'"),
        ("import sys; sys.exit(3)", r"it called sys.exit\(3\)"),
        ("def step(key, dataset): raise KeyError('layer')", "s.toml:2: audit 'toy' failed: .*KeyError: 'layer'"),
        (
            "def step(key, dataset): raise SystemExit(3)",
            r"s.toml:2: audit 'toy' failed: .*it called sys.exit\(3\)\. Fix",
        ),
        (
            "import nothing_of_that_name",
            r"at .*\.py:1 .ModuleNotFoundError: No module named 'nothing_of_that_name'.; install 'nothing_of",
        ),
    ],
)
def test_user_code_that_fails_is_told_in_one_line(told, tmp_path, monkeypatch, module, message):
    name = f"user_module_{abs(hash(module))}"
    (tmp_path / f"{name}.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "s.toml").write_text(SUITE.format(step=f'function = "{name}:step"'))
    assert re.search(message, told("run", tmp_path / "s.toml", "--out", tmp_path / "o"))


def test_the_last_line_says_why_foreign_code_failed(capsys, tmp_path, monkeypatch):
    (tmp_path / "foreign_module.py").write_text("def step(seed, dataset): raise KeyError('layer')")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "s.toml").write_text(SUITE.format(step='kind = "callable_step", function = "foreign_module:step"'))
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "o")]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(r"s.toml:2: audit 'toy' failed: trial 0 .* failed: KeyError: 'layer' \(at .*:1\)\. Fix it", last)


def test_a_function_named_as_a_kind_is_shown_how_to_be_written(told, tmp_path):
    text = SUITE.format(step='kind = "my_package:step"')
    (tmp_path / "s.toml").write_text(text)
    assert 'write { function = "my_package:step" }' in told("run", tmp_path / "s.toml", "--out", tmp_path / "o")


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    path.write_text("old")

    def full(self, *_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", full)
        with pytest.raises(FileError, match=r"x.json: cannot be written .no space left on device.; make room"):
            write_whole(path, "new")
    assert path.read_text() == "old"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FileError, match="permission"):
        require_writable(tmp_path / "x.json")


@pytest.mark.long
def test_records_are_saved_under_any_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = audit.run_audit(
        Shift(mu=1.0), PAIR, First(), claim=guarantees.gaussian(mu=1.0), trials=40, risk=0.05, key=jax.random.key(0)
    )
    audit.save_records((record,), "x.json")
    assert audit.load_records("x.json") == (record,)
    assert audit.write_report((record,), ".", title="t").name == "index.html"


def test_the_risk_is_stated_as_a_confidence(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["bound", "--without", "a.npy", "--with", "b.npy", "--risk", "0.05"])
    assert "'--risk' is not known here (--confidence says it: 1 minus the risk)" in capsys.readouterr().err
