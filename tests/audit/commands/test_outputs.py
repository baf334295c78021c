"""What commands write: into files of their own, through no link, and to streams that are full or closed."""

import inspect
import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from matplotlib.backends.backend_pgf import LatexError
from matplotlib.figure import Figure
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.cli import main
from audit.record.files import FileError, replacing, write_whole
from audit.report.figures import label
from audit.resume.checkpoint import locked
from audit.trials.keys import key_from_seed
from audit.verify.procedure import Check, Verified
from mechanisms.adapters import private_folder
from mechanisms.adapters.for_command import chosen_environment, command_step

RECORDS = Path(__file__).parents[2] / "data" / "records.json"
SUITE = """
trials = 20
[[audit]]
name = "a"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
neighbours = "scalar_pair"
claim = { kind = "gaussian", mu = 1.0 }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("suite.toml").write_text(SUITE)
    Path("secret").write_text("not yours")
    return tmp_path


@pytest.fixture
def records(tmp_path):
    return shutil.copy(RECORDS, tmp_path / "records.json")


@pytest.mark.parametrize("option", ["--junit", "--markdown"])
@pytest.mark.parametrize("file", ["out/records.json", "out/../out/index.html", "suite.toml"])
def test_no_option_overwrites_another_file_of_the_run(folder, capsys, option, file):
    assert main(["run", "suite.toml", "--out", "out", option, file]) == 2
    assert f"{option} {file} would overwrite the" in capsys.readouterr().err
    assert Path("suite.toml").read_text() == SUITE


def test_two_options_do_not_share_a_file(folder, capsys):
    assert main(["run", "suite.toml", "--out", "out", "--junit", "x", "--markdown", "./x"]) == 2
    assert "--markdown ./x would overwrite --junit" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["report", "--format", "csv"], ["plot", "--x", "trials"]])
def test_records_are_not_overwritten_by_what_is_made_of_them(records, capsys, words):
    before = records.read_text()
    assert main([words[0], str(records), *words[1:], "--out", str(records)]) == 2
    assert "would overwrite the records" in capsys.readouterr().err
    assert records.read_text() == before


def test_a_file_is_not_written_through_a_link(folder):
    for name in ("records.json", "records.json.part"):
        Path(name).symlink_to("secret")
    write_whole("records.json", "new")
    assert Path("secret").read_text() == "not yours"
    assert Path("records.json").read_text() == "new"
    assert not Path("records.json").is_symlink()
    assert not list(folder.glob(".dpsgd-audit-*"))


def test_a_new_file_has_the_rights_that_the_user_gives_new_files(folder):
    before = os.umask(0o027)
    try:
        write_whole("new", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path("new").stat().st_mode) == 0o640


def test_what_breaks_off_leaves_the_old_file(folder):
    def begin():
        with replacing("secret") as waiting:
            waiting.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert Path("secret").read_text() == "not yours"
    assert not list(folder.glob(".dpsgd-audit-*"))


@pytest.mark.parametrize("link", [".resume/lock", ".resume"])
def test_a_lock_is_not_taken_through_a_link(folder, link):
    target = folder / "elsewhere" if link == ".resume" else folder / "secret"
    (folder / "elsewhere").mkdir()
    place = folder / "out" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(target)
    with pytest.raises(FileError, match="remove the link"), locked(folder / "out" / ".resume"):
        pass
    assert Path("secret").read_text() == "not yours"
    assert not list((folder / "elsewhere").iterdir())


def test_a_lock_leaves_what_is_in_its_file(folder):
    (folder / "out" / ".resume").mkdir(parents=True)
    (folder / "out" / ".resume" / "lock").write_text("kept")
    with locked(folder / "out" / ".resume"):
        assert (folder / "out" / ".resume" / "lock").read_text() == "kept"


def test_verify_prints_no_name_as_it_is(records, capsys, monkeypatch):
    check = Check(audit="::error::a\x1b[2J", what="bounds", state="wrong", says="##[group]\u061c")
    monkeypatch.setattr("audit.commands.verify.verify", lambda *_, **__: Verified(checks=(check,), primary=()))
    assert main(["verify", str(records)]) == 1
    said = capsys.readouterr().out
    assert "\\x3a:error::a\\x1b[2J" in said
    assert "\\x23#[group]\\u061c" in said


def test_a_list_without_docstrings(monkeypatch, capsys):
    monkeypatch.setattr(inspect, "getdoc", lambda _: None)
    assert main(["list"]) == 0
    assert "gaussian_mechanism(" in capsys.readouterr().out


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_closed_streams_are_no_error(monkeypatch, stream):
    monkeypatch.setattr(sys, stream, None)
    assert main(["list"]) == 0
    opened = getattr(sys, stream)
    assert opened is not None
    opened.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_standard_output_is_told_and_ends_with_an_error(monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["list"]) == 2
        # nothing is left that Python would fail to write at its exit
        full.flush()
    assert "No space left" in capsys.readouterr().err


@pytest.mark.long
def test_figures_and_pages_stand_beside_their_records(tmp_path, monkeypatch):
    """They were written to ./audit-report, which may be another run's."""
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two"):
        Path(folder).mkdir()
        shutil.copy(RECORDS, Path(folder) / "records.json")
    assert main(["report", "one/records.json", "--figures", "svg", "--quiet"]) == 0
    assert main(["report", "two/records.json", "--format", "html", "--quiet"]) == 0
    assert list(Path("one").glob("*.svg"))
    assert Path("two/index.html").exists()
    assert not Path("audit-report").exists()
    assert main(["report", "one/records.json", "two/records.json", "--format", "html", "--quiet"]) == 0
    assert Path("audit-report/index.html").exists()


def test_labels_of_figures_are_text():
    assert label(r"50% $\input{x}$ a_b", Path("x.pgf")) == r"50\% \$\textbackslash{}input\{x\}\$ a\_b"
    assert label("$x$", Path("x.pdf")) == r"\$x\$"


def test_what_latex_says_of_a_figure_is_one_line(records, tmp_path, monkeypatch, capsys):
    def savefig(*_, **__):
        raise LatexError("LaTeX errored (probably missing font or error in preamble) while processing\n! Missing $", "")

    monkeypatch.setattr(Figure, "savefig", savefig)
    assert main(["plot", str(records), "--x", "trials", "--out", str(tmp_path / "x.pgf")]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "LaTeX could not typeset this figure (! Missing $); choose .pdf, .svg or .png." in said
    assert list(tmp_path.iterdir()) == [records]


def test_a_value_with_dollars_is_drawn(records, tmp_path):
    data = json.loads(records.read_text())
    for entry in data["records"]:
        entry["mechanism"]["parameters"] = {"what": "$\\frac{", "which": "a$b$c"}
    (tmp_path / "r.json").write_text(json.dumps(data))
    words = ["--x", "what", "--series", "which", "--out", str(tmp_path / "x.svg"), "--quiet"]
    assert main(["plot", str(tmp_path / "r.json"), *words]) == 0


@pytest.mark.parametrize("given", [{"expect": "x"}, {"name": 3}])
def test_a_record_that_could_not_be_read_is_refused_before_it_is_made(given):
    own = {"claim": guarantees.gaussian(mu=1.0), "trials": 20, "risk": 0.05, "key": key_from_seed(0), **given}
    with pytest.raises(ValueError, match=f"{next(iter(given))} must be"):
        audit.run_audit(Shift(mu=1.0), PAIR, First(), **own)


def test_records_do_not_hold_the_values_of_variables():
    step = command_step(command=["./step"], environment=["PATH", "TOKEN=s3cret"])
    assert step.parameters["environment"] == ("PATH", "TOKEN=(not shown)")
    assert chosen_environment(step.environment)["TOKEN"] == "s3cret"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners are another thing here")
def test_a_folder_of_another_user_holds_no_code_for_us(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(private_folder.SharedFolderError, match="belongs to another user"):
        private_folder.private_folder(tmp_path, "inside")
