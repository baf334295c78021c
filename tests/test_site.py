"""Links of all documents lead somewhere, and the site that is made of them asks nothing of the network."""

from __future__ import annotations

import collections
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "benchmarks", "examples", "mechanisms", "notebooks")
FOUND = (*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.[mi][dp]*")))
DOCUMENTS = sorted(path.relative_to(ROOT) for path in FOUND if path.suffix in (".md", ".ipynb"))
FENCE = re.compile(r"^(`{3,}).*?^\1", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", flags=re.MULTILINE)


def text_of(path: Path) -> str:
    """The prose of a document or of a notebook, without its code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return FENCE.sub("", text)


@functools.cache
def anchors(path: Path) -> set[str]:
    """What its headings are called in an address, here and where repositories are read."""
    found: set[str] = set()
    for heading in HEADING.findall(text_of(path)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", words).strip())
        number = sum(bool(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", each)) for each in found)
        found.add(f"{slug}-{number}" if number else slug)
    return found


def dead_links(document: Path) -> list[str]:
    dead = []
    for link in LINK.findall(text_of(document)):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        path = (document.parent / target).resolve() if target else document
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_link_leads_somewhere(document):
    assert dead_links(ROOT / document) == []


def test_a_dead_link_is_seen(tmp_path):
    (tmp_path / "other.md").write_text("# One word\n\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md#one-word) [b](other.md#no-heading) [c](gone.md) [d](#own)\n\n## Own\n")
    assert dead_links(page) == ["other.md#no-heading", "gone.md"]


POINTER = re.compile(r"docs/([a-z0-9-]+\.md)(?:#([\w-]+)|, '([^']+)'(?: and '([^']+)')?)?")
PACKAGES = ("audit", "dpsgd_audit", "distinguishers", "guarantees", "mechanisms", "papers")


def dead_pointers(text: str) -> list[str]:
    """Documents that code speaks of and that do not exist, or lack the section."""
    dead, flat = [], re.sub(r"\"?\s*\n\s*[#\"]?", " ", text)
    for pointer in POINTER.finditer(flat):
        page, (_, anchor, *sections) = ROOT / "docs" / pointer[1], pointer.groups()
        headings = HEADING.findall(text_of(page)) if page.exists() else []
        lost = [section for section in sections if section and re.sub(r"\s+", " ", section) not in headings]
        if not page.exists() or lost or (anchor and anchor not in anchors(page)):
            dead.append(pointer[0])
    return dead


@pytest.mark.parametrize("package", PACKAGES)
def test_the_documents_that_code_speaks_of_exist(package):
    files = [path for path in (ROOT / package).rglob("*.py*") if path.suffix in (".py", ".pyi")]
    dead = {str(path): dead_pointers(path.read_text(encoding="utf-8")) for path in files}
    assert {path: found for path, found in dead.items() if found} == {}


def test_a_dead_pointer_is_seen():
    told = (
        "\"see docs/install.md, 'Names'\" and docs/gone.md, docs/install.md#names, docs/faq.md#gone, docs/ci.md, 'Gone'"
    )
    assert dead_pointers(told) == ["docs/gone.md", "docs/faq.md#gone", "docs/ci.md, 'Gone'"]


def test_documents_of_every_kind_are_looked_at():
    assert {"README.md", "docs/faq.md", "benchmarks/README.md", "examples/ci/README.md"} <= set(map(str, DOCUMENTS))
    assert any(path.suffix == ".ipynb" for path in DOCUMENTS)


def test_every_page_stands_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert pages - {name for name in pages if re.search(rf"\b{re.escape(name)}$", menu, flags=re.MULTILINE)} == set()


def test_a_measured_row_stands_on_one_page():
    """A number that is measured again is corrected in one place."""
    pages = [ROOT / "benchmarks" / "README.md", *(ROOT / "docs").glob("*.md")]
    rows = [line for page in pages for line in {*page.read_text(encoding="utf-8").splitlines()} if line[:1] == "|"]
    measured = [row for row in rows if len(set(re.findall(r"\d[\d,.]*\d", row))) > 3]
    assert len(measured) > 200
    assert [row for row, times in collections.Counter(measured).items() if times > 1] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="make docs installs it")
    pytest.importorskip("mkdocstrings", reason="make docs installs it")
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.mark.long
def test_the_reference_has_every_public_name_and_command(site):
    import audit
    import distinguishers
    import guarantees
    import mechanisms
    from audit.commands.arguments import COMMANDS

    for package in (audit, distinguishers, mechanisms, guarantees):
        page = (site / "reference" / f"{package.__name__}.html").read_text(encoding="utf-8")
        titles = set(re.findall(rf"\b{package.__name__}\.(\w+)", re.sub(r"<[^>]+>", "", page)))
        assert set(dir(package)) - titles == set()
    page = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    assert all(f'id="{command.name}"' in page for command in COMMANDS)


@pytest.mark.long
def test_the_site_opens_from_a_folder_and_asks_nothing_of_the_network(site):
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or pytest.skip("no chromium")
    asked, said = [], []
    with playwright.sync_playwright() as session:
        browser = session.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        for place in ("index.html", "statistics.html", "reference/audit.html"):
            page.goto((site / place).as_uri())
        search = page.get_by_role("textbox", name="Search")
        search.click()
        page.get_by_text("Type to start searching").wait_for()
        search.press_sequentially("relation")
        page.wait_for_selector(".md-search-result__item a[href*='faq.html']", state="attached", timeout=20_000)
        browser.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:", "blob:"))] == []
