"""Run the notebooks and keep what they show: python tools/run_notebooks.py [NAME...], or `make notebooks`.

What depends on the moment is left out, so the same code on the same versions writes the same file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
SECONDS = 600


def executed(path: Path, parameters: dict[str, object] | None = None) -> nbformat.NotebookNode:
    """The notebook with fresh outputs; ``parameters`` replace those of its tagged cell, as papermill does it."""
    notebook = nbformat.read(path, as_version=4)
    if parameters:
        (place,) = (n for n, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ()))
        told = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
        notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(told))
    how = {"timeout": SECONDS, "kernel_name": "python3", "record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, resources={"metadata": {"path": str(path.parent)}}, **how).execute()
    return notebook


def main() -> None:
    """Write the outputs of all, or of those that are named, into their files."""
    os.environ["DPSGD_AUDIT_PROGRESS"] = "off"
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if len(sys.argv) == 1 or path.stem in sys.argv[1:]:
            notebook = executed(path)
            notebook.metadata.pop("language_info", None)
            nbformat.write(notebook, path)
            print(path.name)


if __name__ == "__main__":
    main()
