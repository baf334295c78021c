"""How a package shows itself: its stub says which names it offers, and each is loaded when it is first used."""

from __future__ import annotations

import ast
import importlib
import sys
import types
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from dpsgd_audit import name_clashes


class Face(types.ModuleType):
    """A package whose public names are those that its ``__init__.pyi`` imports, for editors and for Python alike."""

    def __getattr__(self, name: str) -> Any:
        home = self.__dict__["_homes"].get(name)
        if home is not None:
            return getattr(_load(home, self.__name__), name)
        if not name.startswith("_") and PathFinder.find_spec(f"{self.__name__}.{name}", self.__path__) is None:
            name_clashes.explain_missing(self.__name__, name, self.__file__)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        # importing a submodule would bind it over the public name that it shares, as in mechanisms.one_round
        if name in self.__dict__["_homes"] and isinstance(value, types.ModuleType):
            return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return self.__dict__["__all__"]


def show(name: str) -> None:
    """Make the package that calls this a Face."""
    module = sys.modules[name]
    assert module.__file__ is not None
    stub = Path(module.__file__).with_suffix(".pyi")
    homes = {
        alias.asname or alias.name: node.module
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module.__dict__.update(_homes=homes, __all__=sorted(homes))
    module.__class__ = Face
    if _Explaining not in sys.meta_path:
        sys.meta_path.append(_Explaining)


def _load(home: str, package: str) -> types.ModuleType:
    try:
        return importlib.import_module(home)
    except ImportError as error:
        # a stranger called mechanisms makes ours fail somewhere deep inside
        if wrong := name_clashes.found():
            raise ImportError(wrong, name=package) from error
        raise


class _Explaining:
    """Asked last for a module that nobody found: if it is missing in a package of ours, says what may be meant."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, rest = name.partition(".")
        module = sys.modules.get(package)
        if rest and path is not None and isinstance(module, Face):
            name_clashes.explain_missing(package, rest, module.__file__)
        return None
