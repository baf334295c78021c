"""Files of the repository that documents link to, as pages of the site under source/."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALWAYS = ("benchmarks/README.md", "CHANGELOG.md", "CONTRIBUTING.md")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
LANGUAGES = {".py": "python", ".c": "c", ".toml": "toml", ".bib": "bibtex", ".yml": "yaml"}
SOURCE = "source/"


def pages(docs: Path, notebooks: Mapping[str, str]) -> dict[str, str]:
    """Page and content for every file outside docs/ that a document links to, directly or through another."""
    made: dict[str, str] = {}
    waiting = [*ALWAYS]
    for place, text in notebooks.items():
        waiting += _targets(text, place)
    for file in sorted(docs.glob("*.md")):
        waiting += _targets(file.read_text(encoding="utf-8"), f"docs/{file.name}")
    while waiting:
        path = waiting.pop()
        if (place := _place(path)) in made or place in notebooks or not (ROOT / path).exists():
            continue
        made[place] = content = _content(ROOT / path)
        if path.endswith(".md"):
            waiting += _targets(content, path)
    return made


def relinked(markdown: str, page: str) -> str:
    """The same text, its links into the repository made links to pages."""
    own = page.removeprefix(SOURCE) if page.startswith((SOURCE, "notebooks/")) else f"docs/{page}"

    def replaced(found: re.Match[str]) -> str:
        if _is_foreign(found[2]):
            return found[0]
        target, mark, anchor = found[2].partition("#")
        path = _resolved(target, own)
        if path.startswith("docs/"):
            place = path.removeprefix("docs/")
        elif (ROOT / path).exists():
            place = _place(path)
        else:
            return found[0]
        return f"{found[1]}{posixpath.relpath(place, posixpath.dirname(page) or '.')}{mark}{anchor}{found[3]}"

    return LINK.sub(replaced, markdown)


def _targets(markdown: str, own: str) -> list[str]:
    """Files and folders outside docs/ that a text of the repository links to."""
    links = [link.partition("#")[0] for _, link, _ in LINK.findall(markdown) if not _is_foreign(link)]
    return [path for path in (_resolved(link, own) for link in links) if not path.startswith(("docs/", ".."))]


def _is_foreign(link: str) -> bool:
    return link.startswith("#") or ":" in link


def _resolved(link: str, own: str) -> str:
    """A link as a path from the root of the repository; a folder stands for its README."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(own), link))
    readme = f"{path}/README.md"
    return readme if (ROOT / readme).exists() else path


def _place(path: str) -> str:
    """The page that stands for a file of the repository."""
    if path.endswith(".ipynb"):
        return f"{path.removesuffix('.ipynb')}.md"
    return f"{SOURCE}{path}" if path.endswith(".md") else f"{SOURCE}{path}.md"


def _content(path: Path) -> str:
    if path.is_dir():
        names = sorted(file.name for file in path.iterdir() if file.is_file())
        return f"# {path.name}/\n\n" + "\n".join(f"- [{name}]({path.name}/{name})" for name in names) + "\n"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    return f"# {path.name}\n\n`````{LANGUAGES.get(path.suffix, 'text')}\n{text}`````\n"
