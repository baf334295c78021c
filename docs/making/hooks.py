"""What MkDocs asks while it builds the site: pages made of the code, and links that leave docs/."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import cells
import outside
import reference


def on_config(config: Any) -> Any:
    """Put the notebooks, whatever they are, into the menu behind the guides."""
    if made := cells.pages():
        config.nav.insert(2, {"Notebooks": sorted(made)})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the reference, and every file of the repository that a page links to."""
    told = cells.pages()
    made = {**reference.pages(), **told, **outside.pages(Path(config.docs_dir), told)}
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that leave docs/ to the pages that stand in for their targets."""
    return outside.relinked(markdown, page.file.src_uri)
