"""Notebooks as pages: prose, code, and what the code printed or drew when the notebook was last run."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "notebooks"
PICTURES = ("image/svg+xml", "image/png")


def pages() -> dict[str, str]:
    """Page and Markdown of every notebook."""
    return {f"notebooks/{path.stem}.md": _markdown(path) for path in sorted(FOLDER.glob("*.ipynb"))}


def _markdown(path: Path) -> str:
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif source:
            parts += [_fenced(source, "python"), *map(_output, cell["outputs"])]
    return "\n\n".join(filter(None, parts))


def _output(output: dict[str, Any]) -> str:
    """A picture where there is one, else text."""
    data = output.get("data", {})
    for kind in PICTURES:
        if kind in data:
            content = "".join(data[kind])
            # notebooks hold PNG in base64 and SVG as it is
            coded = content.replace("\n", "") if kind == "image/png" else base64.b64encode(content.encode()).decode()
            return f"![what this cell draws](data:{kind};base64,{coded})"
    text = "".join(output.get("text", data.get("text/plain", "")))
    return _fenced(text.rstrip("\n"), "text") if text.strip() else ""


def _fenced(text: str, language: str) -> str:
    return f"`````{language}\n{text}\n`````"
