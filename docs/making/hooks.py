"""What MkDocs asks while it builds the site: pages made of the code, and links that leave docs/."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import outside
import reference


def on_files(files: Files, config: Any) -> Files:
    """Add the reference, and every file of the repository that a page links to."""
    made = {**reference.pages(), **outside.pages(Path(config.docs_dir))}
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that leave docs/ to the pages that stand in for their targets."""
    return outside.relinked(markdown, page.file.src_uri)
