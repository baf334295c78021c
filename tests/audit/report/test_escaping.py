import dataclasses
import io
from xml.etree import ElementTree

import jax
import pytest
from rich.console import Console
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.record.compare import compare
from audit.report import table
from audit.report.escaping import markdown_text, printable, visible
from audit.report.formats import github_annotations, junit, markdown
from audit.report.page import write_report
from audit.report.text import record_lines

EVIL = "a\x1b[2J\x07b\n::error::c|d <script>alert(1)</script> [red]e[/] [x](http://y) `f` \x00\ud800\u202e%0A"


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
    assert markdown_text("[x](http://y)|`z`<b>") == "&#91;x&#93;(http://y)&#124;&#96;z&#96;&lt;b&gt;"


def test_the_terminal_gets_no_markup_and_no_escapes(record, monkeypatch):
    out = io.StringIO()
    own = {"file": out, "force_terminal": True, "color_system": None}
    monkeypatch.setattr(table, "Console", lambda width=200: Console(width=width, **own))
    table.print_table((record,), suite_risk=0.05)
    assert "\x1b[2J" not in out.getvalue()
    assert "[red]e[/]" in out.getvalue().replace("\n", "")
    assert compare((record,), (record,), risk=0.05)[0].state == "same"
