"""Reference pages, made of what the code says of itself: four packages and the command line."""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from dpsgd_audit.face import offered

ROOT = Path(__file__).parents[2]
PACKAGES = ("audit", "distinguishers", "mechanisms", "guarantees")
EXIT_CODES = """
Every command ends with 2 on bad input. `run` ends with 0 if every verdict is as expected, 1 if one is not, 2 if an
audit could not run (`--keep-going`), 3 if one is inconclusive, and `bound --claim` likewise; `compare` with 1 if
something got worse and 4 if something could not be compared; `verify` with 1 if a value does not follow from the record
and 3 if one could not be computed.
"""


def pages() -> dict[str, str]:
    """Page and Markdown, for each package and for the command line."""
    made = {f"reference/{package}.md": _package(package) for package in PACKAGES}
    return {**made, "reference/command-line.md": _command_line()}


def homes(package: str) -> dict[str, str]:
    """Public names and the module that each comes from, as the package's stub says."""
    return offered(ROOT / package.replace(".", "/") / "__init__.pyi")


def _package(package: str) -> str:
    """A page: the table of all names, what each of them is, and the rooms behind the face."""
    told: set[str] = set()
    lines = [f"# {package}", "", _says(package), "", *_entries(package, homes(package), told)]
    for name, home in homes(package).items():
        room = f"{home}.{name}"
        if _file(room).is_file():
            inside = {own: place for own, place in _room(room).items() if own not in homes(package)}
            lines += [f"## {package}.{name}", "", _says(room), "", *_entries(f"{package}.{name}", inside, told)]
    return "\n".join(lines)


def _entries(package: str, names: dict[str, str], told: set[str]) -> list[str]:
    """A table of the names and what each is; classes that the page has told already are not told again."""
    own = {name: home for name, home in names.items() if not _file(f"{home}.{name}").is_file()}
    own = {name: home for name, home in own.items() if _place(home, name) not in told}
    ordered = sorted(own.items(), key=lambda pair: (pair[0].lower(), pair[0]))
    places = {name: _place(home, name) for name, home in ordered}
    lines = ["| name | |", "|---|---|"]
    lines += [f"| [`{name}`](#{place}) | {_first_line(*place.rsplit('.', 1))} |" for name, place in places.items()]
    lines.append("")
    told |= set(places.values())
    for name, place in places.items():
        lines += _entry(place, f"{package}.{name}", name)
        for returned in _returned(place) - told:
            told.add(returned)
            lines += _entry(returned, f"{returned.rpartition('.')[2]}, which {name} returns", "")
    return lines


def _entry(place: str, heading: str, label: str) -> list[str]:
    told = [f"      toc_label: {label}"] if label else ["      show_root_toc_entry: false"]
    return [f"::: {place}", "    options:", f"      heading: {heading}", *told, ""]


def _says(module: str) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(_tree(module)) or "").partition("\n")[0]


def _file(module: str) -> Path:
    folder = ROOT / module.replace(".", "/")
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text(encoding="utf-8"))


def _room(module: str) -> dict[str, str]:
    """Names of an inner face; of a plain module the lower-case names of its classes, else its functions."""
    if _file(module).name == "__init__.py":
        return homes(module)
    body = _tree(module).body
    short = [target for node in body if _alias(node) for target in _assigned(node)]
    found = short or [node.name for node in body if isinstance(node, ast.FunctionDef)]
    return {name: module for name in found if not name.startswith("_")}


def _alias(node: ast.stmt) -> str | None:
    """The class, where a statement gives it its lower-case name, as in ``one_round = OneRound``."""
    made = node.value if isinstance(node, ast.Assign) else None
    return made.id if isinstance(made, ast.Name) and made.id[0].isupper() else None


def _place(home: str, name: str) -> str:
    """Where a name is explained: the class, for the lower-case name of one."""
    for node in _tree(home).body:
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            return _place(str(node.module), name)
        if name in _assigned(node) and (known := _alias(node)):
            return f"{home}.{known}"
    return f"{home}.{name}"


def _returned(place: str) -> set[str]:
    """The class of its own module that a function returns."""
    home, _, name = place.rpartition(".")
    body = _tree(home).body
    classes = {node.name for node in body if isinstance(node, ast.ClassDef)}
    given = [node.returns for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    return {f"{home}.{each.id}" for each in given if isinstance(each, ast.Name) and each.id in classes}


def _first_line(home: str, name: str) -> str:
    """How the docstring of a name begins, wherever its home took the name from."""
    body = _tree(home).body
    for node, later in itertools.zip_longest(body, body[1:]):
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            return _first_line(str(node.module), name)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name and ast.get_docstring(node):
            return (ast.get_docstring(node) or "").partition("\n")[0].replace("|", "\\|")
        if name in _assigned(node) and isinstance(later, ast.Expr) and isinstance(later.value, ast.Constant):
            return str(later.value.value).partition("\n")[0].replace("|", "\\|")
    return ""


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _command_line() -> str:
    from audit.commands.arguments import COMMANDS

    lines = ["# Command line", "", "`dpsgd-audit COMMAND --help` prints the same.", EXIT_CODES]
    for command in COMMANDS:
        own = argparse.ArgumentParser(prog=f"dpsgd-audit {command.name}", add_help=False)
        command.options(own)
        lines += [
            f"## {command.name}",
            "",
            f"{command.help[0].upper()}{command.help[1:]}.",
            "",
            "| argument | meaning |",
            "|---|---|",
        ]
        # argparse offers no public list of its arguments
        lines += [_row(own, action) for action in own._actions]
        lines.append("")
    return "\n".join(lines)


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    words = inspect.cleandoc(action.help or "") % {**vars(action), "prog": parser.prog}
    values = action.metavar or ("\\|".join(action.choices) if action.choices else None)
    if isinstance(values, tuple):
        values = " ".join(values)
    if not action.option_strings:
        return f"| `{values or action.dest}` | {words} |"
    takes = "" if action.nargs == 0 else f" {values or action.dest.upper()}"
    flags = ", ".join(action.option_strings)
    return f"| `{flags}{takes}` | {words} |".replace("`'", "`").replace("'`", "`")
