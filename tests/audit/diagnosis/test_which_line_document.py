"""docs/which-line.md shows what a terminal shows."""

from __future__ import annotations

import re
from pathlib import Path

from audit.cli import main

ROOT = Path(__file__).parents[3]


def test_the_five_bugs_are_printed_as_the_document_says(capsys, monkeypatch):
    text = (ROOT / "docs" / "which-line.md").read_text().partition("## Five bugs")[2].partition("## How it works")[0]
    code, *blocks = re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL)
    lines = (ROOT / "examples" / "which_line" / "train.py").read_text().splitlines()
    for number, shown in re.findall(r"^ ?(\d+)(?:  (.*))?$", code, flags=re.MULTILINE):
        assert lines[int(number) - 1] == shown
    monkeypatch.chdir(ROOT / "examples" / "which_line")
    assert main(["explain", "privacy.toml"]) == 1
    printed = capsys.readouterr().out
    assert len(blocks) == 5
    for block in blocks:
        assert block in printed
