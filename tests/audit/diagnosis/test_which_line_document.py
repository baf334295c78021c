"""docs/which-line.md and docs/which-line-details.md show what a terminal shows."""

from __future__ import annotations

import re
from pathlib import Path

from audit.cli import main

ROOT = Path(__file__).parents[3]
BUGS = {"which-line.md": ("## One example", 1), "which-line-details.md": ("## Four more bugs", 4)}


def test_the_five_bugs_are_printed_as_the_documents_say(capsys, monkeypatch):
    lines = (ROOT / "examples" / "which_line" / "train.py").read_text().splitlines()
    monkeypatch.chdir(ROOT / "examples" / "which_line")
    assert main(["explain", "privacy.toml"]) == 1
    printed = capsys.readouterr().out
    for page, (heading, bugs) in BUGS.items():
        text = (ROOT / "docs" / page).read_text().partition(heading)[2].partition("\n## ")[0]
        code, *blocks = re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL)
        shown = re.findall(r"^ ?(\d+)(?:  (.*))?$", code, flags=re.MULTILINE)
        assert shown
        assert [lines[int(number) - 1] for number, _ in shown] == [line for _, line in shown]
        assert len(blocks) == bugs
        assert [block for block in blocks if block not in printed] == []
