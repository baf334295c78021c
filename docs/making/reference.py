"""Reference pages, made of what the code says of itself: four packages and the command line."""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("audit", "distinguishers", "mechanisms", "guarantees")
EXIT_CODES = """
Every command ends with 2 on bad input. `run` ends with 0 if every verdict is as expected, 1 if one is not, 3 if one is
inconclusive, and `bound --claim` likewise; `compare` with 1 if something got worse and 4 if something could not be
compared; `verify` with 1 if a value does not follow from the record and 3 if one could not be computed.
"""


def pages() -> dict[str, str]:
    """Page and Markdown, for each package and for the command line."""
    made = {f"reference/{package}.md": _package(package) for package in PACKAGES}
    return {**made, "reference/command-line.md": _command_line()}


def homes(package: str) -> dict[str, str]:
    """Public names and the module that each comes from, as the package's stub says."""
    stub = ast.parse((ROOT / package / "__init__.pyi").read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: str(node.module)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _package(package: str) -> str:
    says = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    lines = [f"# {package}", "", says.partition("\n")[0], "", "| name | |", "|---|---|"]
    names = sorted(homes(package).items(), key=lambda pair: (pair[0].lower(), pair[0]))
    lines += [f"| [`{name}`](#{home}.{name}) | {_first_line(home, name)} |" for name, home in names]
    lines.append("")
    for name, home in names:
        lines += [
            f"::: {home}.{name}",
            "    options:",
            f"      heading: {package}.{name}",
            f"      toc_label: {name}",
            "",
        ]
    return "\n".join(lines)


def _first_line(home: str, name: str) -> str:
    """How the docstring of a name begins, wherever its home took the name from."""
    file = ROOT / home.replace(".", "/")
    text = (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8")
    body = ast.parse(text).body
    for node, later in itertools.zip_longest(body, body[1:]):
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            return _first_line(str(node.module), name)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n")[0].replace("|", "\\|")
        if name in _assigned(node) and isinstance(later, ast.Expr) and isinstance(later.value, ast.Constant):
            return str(later.value.value).partition("\n")[0].replace("|", "\\|")
    return ""


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _command_line() -> str:
    sys.path.insert(0, str(ROOT))
    from audit.commands import COMMANDS

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
