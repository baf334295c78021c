"""dpsgd-audit list: what a suite can name, with parameters."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any

from audit.commands.json_output import print_json


def execute(arguments: argparse.Namespace) -> int:
    """Print all constructors, by the part that they make."""
    from audit.suites.build import catalogue

    known = catalogue()
    if arguments.schema:
        from audit.suites.schema import suite_schema

        print_json(suite_schema(known), indent=2)
        return 0
    if arguments.json:
        print_json({part: {n: _parameters(c) for n, c in group.items()} for part, group in known.items()})
        return 0
    if arguments.quiet:
        return 0
    for part, group in known.items():
        print(part)
        for name, constructor in sorted(group.items()):
            inside = ", ".join(f"{k}={v}" if v is not None else k for k, v in _parameters(constructor).items())
            print(f"  {name}({inside})")
            # python -OO has no docstrings
            if summary := (inspect.getdoc(constructor) or "").partition("\n")[0]:
                print(f"      {summary}")
    return 0


def _parameters(constructor: Callable[..., Any]) -> dict[str, str | None]:
    """Parameter names with their defaults; None for a required one."""
    return {
        name: None if parameter.default is inspect.Parameter.empty else repr(parameter.default)
        for name, parameter in inspect.signature(constructor).parameters.items()
        if name not in ("mechanism", "neighbours", "kind")
    }
