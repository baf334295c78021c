"""How a package shows itself: its stub says which names it offers, and each is loaded when it is first used."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import types
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, TypeVar

from dpsgd_audit import name_clashes
from dpsgd_audit.spelling import closest

Loaded = TypeVar("Loaded")


class ByName(Mapping[str, Loaded]):
    """Public names of packages with what they stand for, each loaded when it is first looked up."""

    def __init__(self, package: str, *names: str):
        self._packages = dict.fromkeys(names, package)

    def __or__(self, others: ByName[Loaded]) -> ByName[Loaded]:
        both = ByName[Loaded]("")
        both._packages = self._packages | others._packages
        return both

    def home(self, name: str) -> str:
        """The module or package from which Python imports a name."""
        return self._packages[name]

    def __getitem__(self, name: str) -> Loaded:
        return getattr(importlib.import_module(self.home(name)), name)

    def __contains__(self, name: object) -> bool:
        return name in self._packages

    def __iter__(self) -> Iterator[str]:
        return iter(self._packages)

    def __len__(self) -> int:
        return len(self._packages)


class Face(name_clashes.OurPackage):
    """A package whose public names are those that its ``__init__.pyi`` imports, for editors and for Python alike."""

    def __getattr__(self, name: str) -> Any:
        home = self.__dict__["_homes"].get(name)
        if home is not None:
            return _load(home, name, self.__name__)
        missing = f"module {self.__name__!r} has no attribute {name!r}"
        if not name.startswith("_") and PathFinder.find_spec(f"{self.__name__}.{name}", self.__path__) is None:
            if self.__name__ in name_clashes.PACKAGES:
                name_clashes.explain_missing(self.__name__, name, self.__file__)
            if place := _defined_in(self, name):
                missing += f"; it is in {place}"
            elif meant := closest(name, self.__dict__["__all__"]):
                missing += f"; did you mean {meant!r}?"
        raise AttributeError(missing)

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
    homes = offered(Path(module.__file__).with_suffix(".pyi"))
    module.__dict__.update(_homes=homes, __all__=sorted(homes))
    module.__class__ = Face
    if _Explaining not in sys.meta_path:
        sys.meta_path.append(_Explaining)


def offered(stub: Path) -> dict[str, str]:
    """The names that a stub offers, and the module that each comes from."""
    return {
        alias.asname or alias.name: str(node.module)
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _load(home: str, name: str, package: str) -> Any:
    """A name from its home, or the module of that name inside it."""
    try:
        found = vars(importlib.import_module(home))
        return found[name] if name in found else importlib.import_module(f"{home}.{name}")
    except ImportError as error:
        # a stranger called mechanisms makes ours fail somewhere deep inside
        if wrong := name_clashes.found():
            raise ImportError(wrong, name=package) from error
        raise


def _defined_in(package: Face, name: str) -> str | None:
    """The module below a package that defines a name, or the inner face that offers it."""
    root = Path(str(package.__file__)).parent
    for stub in sorted(root.glob("*/__init__.pyi")):
        if name in offered(stub):
            return f"{package.__name__}.{stub.parent.name}"
    defines = re.compile(rf"^(?:class|def) {re.escape(name)}\b|^{re.escape(name)}\b[^\n(]*=", flags=re.MULTILINE)
    for file in sorted(root.rglob("*.py")):
        if defines.search(file.read_text(encoding="utf-8")):
            return ".".join((package.__name__, *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    return None


class _Explaining:
    """Asked last for a module that nobody found: if it is missing in a package of ours, says what may be meant."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, rest = name.partition(".")
        module = sys.modules.get(package)
        if rest and path is not None and isinstance(module, Face):
            name_clashes.explain_missing(package, rest, module.__file__)
        return None
