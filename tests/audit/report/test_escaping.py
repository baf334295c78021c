import dataclasses
import io
import json
import unicodedata
from xml.etree import ElementTree

import jax
import pytest
from rich.console import Console
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.record.compare import compare
from audit.report import table
from audit.report.escaping import as_html, json_text, markdown_text, printable, visible
from audit.report.formats import github_annotations, junit, markdown, separated
from audit.report.page import write_report
from audit.report.text import record_lines

EVIL = "a\x1b[2J\x07b\n::error::c|d <script>alert(1)</script> [red]e[/] [x](http://y) `f` \x00\ud800\u202e%0A"

TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@pytest.fixture(scope="module")
def record():
    claim, key = guarantees.gaussian(mu=1.0), jax.random.key(0)
    found = audit.run_audit(Shift(mu=3.0), PAIR, First(), claim=claim, trials=400, risk=0.05, key=key)
    part = dataclasses.replace(found.mechanism, name=EVIL, parameters={EVIL: EVIL})
    return dataclasses.replace(found, name=EVIL, mechanism=part, reason=EVIL)


def test_what_does_something_is_written_out():
    assert visible("a\x1bb\nc\x9d") == "a\\x1bb\\nc\\x9d".replace("\\n", "\\x0a")
    assert visible("::stop-commands::x") == "\\x3a:stop-commands::x"
    assert visible("naïve µ ∈ 数") == "naïve µ ∈ 数"
    assert printable("one\n\ttwo\x1b") == "one\n        two\\x1b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("  ::error::x", "  \\x3a:error::x"),
        ("\u00a0\u3000::error::x", "\u00a0\u3000\\x3a:error::x"),
        ("a ::add-mask::x", "a \\x3a:add-mask::x"),
        ("a::set-env name=b::x", "a\\x3a:set-env name=b::x"),
        ("a##[group]b", "a\\x23#[group]b"),
        ("a##vso[task.setvariable]b", "a\\x23#vso[task.setvariable]b"),
        ("\u061cx\u2066", "\\u061cx\\u2066"),
        ("a\u200bb\ufeff\U000e0041", "a\\u200bb\\ufeff\\U000e0041"),
        ("tests/test_it.py::TestIt::test_this", "tests/test_it.py::TestIt::test_this"),
        ("## a [b]", "## a [b]"),
    ],
)
def test_commands_to_a_build_are_taken_apart_wherever_they_stand(text, shown):
    assert visible(text) == shown
    assert printable(f"a\n{text}") == f"a\n{shown}"


def test_no_character_that_turns_a_line_around_is_left():
    turns = [chr(code) for code in range(0x20000) if unicodedata.bidirectional(chr(code)) in TURNS]
    assert len(turns) == 9
    assert not set(turns) & set(visible("".join(turns)))


def test_json_in_a_log_holds_no_command():
    data = {"##[group]a": ["##[error]", "\\##"]}
    assert "##" not in json_text(data)
    assert json.loads(json_text(data)) == data


def test_csv_in_a_log_holds_no_command(record):
    named = [dataclasses.replace(record, name=name) for name in ("  ::error::x", "a\n::error::x", "b ##[group]")]
    lines = separated(tuple(named)).splitlines()
    assert len(lines) == 4
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line]


def test_every_format_shows_a_name_as_it_is(record, tmp_path):
    for text in (markdown((record,), title=EVIL), junit((record,), title=EVIL), *record_lines(record)):
        assert not {"\x1b", "\x00", "\x07", "\ud800", "\u202e"} & set(text)
    assert len(markdown((record,), title=EVIL).splitlines()) == len(markdown((record,), title="t").splitlines())
    assert "<script>" not in markdown((record,), title=EVIL)
    case = ElementTree.fromstring(junit((record,), title=EVIL)).find(".//testcase")
    assert case.get("name") == visible(EVIL)
    (line,) = github_annotations((record,))
    assert "\n" not in line
    assert line.startswith("::error title=a\\x1b[2J")
    page = write_report((record,), tmp_path, title=EVIL).read_text()
    assert "<script>alert" not in page
    assert "\x1b" not in page


def test_markdown_makes_no_link_of_a_name():
    assert markdown_text("[x](http://y)|`z`<b>") == "\\[x\\](http://y)&#124;&#96;z&#96;&lt;b&gt;"
    assert markdown_text("\\[x](y)") == "&#92;\\[x\\](y)"


def test_a_call_stays_readable_in_markdown():
    assert markdown_text("claim_from_table(points=1)") == "claim_from_table(points=1)"
    assert markdown_text("_x_ a__b") == "&#95;x&#95; a&#95;&#95;b"


def test_the_terminal_gets_no_markup_and_no_escapes(record, monkeypatch):
    out = io.StringIO()
    own = {"file": out, "force_terminal": True, "color_system": None}
    monkeypatch.setattr(table, "Console", lambda width=200: Console(width=width, **own))
    table.print_table((record,), suite_risk=0.05)
    assert "\x1b[2J" not in out.getvalue()
    assert "[red]e[/]" in out.getvalue().replace("\n", "")
    assert compare((record,), (record,), risk=0.05)[0].state == "no_change_shown"


def test_code_on_a_page_is_escaped_first():
    assert as_html("let `run <x>` & `<b>`; a ` alone") == (
        "let <code>run &lt;x&gt;</code> &amp; <code>&lt;b&gt;</code>; a ` alone"
    )
