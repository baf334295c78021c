"""Other people's packages with our names: which file ``import audit`` gives, and what to do about it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Mapping
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

PACKAGES = ("guarantees", "mechanisms", "distinguishers", "audit")
"""Our import names."""
HOME = Path(__file__).parents[1]
"""The folder that we are installed in."""
RENAME = (
    "One process cannot import two packages of the same name: rename yours, or run what needs dpsgd-audit where yours "
    "cannot be imported, in another environment or folder (docs/install.md, 'Names')."
)
REMEDY = f"{RENAME} If the process does not need yours, `from dpsgd_audit import audit` imports ours."


class OurPackage(types.ModuleType):
    """What each of our packages makes itself when it is imported, and no stranger is."""


def found() -> str | None:
    """What is wrong where one of our names is somebody else's; None where all are ours. It imports all four."""
    for name in PACKAGES:
        module = importlib.import_module(name)
        if not isinstance(module, OurPackage):
            return _shadowed(name, str(module.__file__ or list(module.__path__)))
    return None


def ours(name: str) -> types.ModuleType:
    """Our package of this name, wherever a stranger's stands on the path, unless that was imported already.

    All four are taken, since each imports the others by name: from now on `import audit` gives ours in this process.
    """
    for each in PACKAGES:
        known = sys.modules.get(each)
        if known is not None and not isinstance(known, OurPackage):
            raise ImportError(_shadowed(each, str(known.__file__ or list(known.__path__))), name=each)
        if known is None:
            spec = PathFinder.find_spec(each, [str(HOME)])
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[each] = module
            spec.loader.exec_module(module)
    return sys.modules[name]


class Explaining:
    """Asked last for a module that nobody found: where a stranger of our name lacks what ours has, says so."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Never finds anything; raises with the way out, or leaves Python its own error."""
        package, _, rest = name.partition(".")
        module = sys.modules.get(package)
        if package in PACKAGES and rest and path is not None and module is not None:
            file = str(module.__file__ or list(module.__path__))
            inside = PathFinder.find_spec(name, [str(HOME.joinpath(*name.split(".")[:-1]))])
            if inside is not None and not Path(file).is_relative_to(HOME / package):
                raise ModuleNotFoundError(_shadowed(package, file), name=name)
        return None


def explain() -> None:
    """Say what is wrong where Python would only say that it knows no such module."""
    if Explaining not in sys.meta_path:
        sys.meta_path.append(Explaining)


def _shadowed(name: str, file: str) -> str:
    beginning = f"`import {name}` gives {file}, which is not dpsgd-audit's {name}"
    if Path(file).is_relative_to(HOME / name):
        told = " or ".join(other_owners(name)) or "another distribution"
        return f"{beginning}: {told} was installed over it, and ours must be installed again. {RENAME}"
    return f"{beginning} ({HOME / name}) and comes before it. {REMEDY}"


def other_owners(package: str) -> list[str]:
    """Distributions beside ours that say they installed this package."""
    return sorted(set(_owners().get(package, ())) - {"dpsgd-audit"})


@functools.cache
def _owners() -> Mapping[str, list[str]]:
    # not at the top: it takes longer than all the rest of `import audit`
    from importlib import metadata

    return metadata.packages_distributions()


def explain_missing(package: str, name: str, ours: str | None) -> None:
    """Raise if somebody asks our package for what it lacks and another of its name is installed, behind it or under."""
    if others := elsewhere(package, ours):
        raise ModuleNotFoundError(
            f"dpsgd-audit's {package} ({ours}) has no {name!r}. Another {package} is at {' and '.join(others)}, but "
            f"Python finds dpsgd-audit's first. {RENAME}",
            name=f"{package}.{name}",
        )
    if owners := other_owners(package):
        raise ModuleNotFoundError(
            f"dpsgd-audit's {package} ({ours}) has no {name!r}; it was installed over that of {' and '.join(owners)}, "
            f"which must be installed again. {RENAME}",
            name=f"{package}.{name}",
        )


def elsewhere(package: str, ours: str | None) -> list[str]:
    """Files of other packages of this name that Python would find if ours were not there."""
    others = [finder for finder in sys.meta_path if finder not in (BuiltinImporter, FrozenImporter, PathFinder)]
    specs = [PathFinder.find_spec(package, [folder]) for folder in sys.path]
    specs += [finder.find_spec(package, None) for finder in others]
    files = {spec.origin for spec in specs if spec is not None and spec.origin not in (None, ours)}
    # another copy of ours, say a checkout beside an installed wheel, is no stranger
    return sorted(file for file in files if file and not _all_four(Path(file).parent.parent))


def _all_four(folder: Path) -> bool:
    return all((folder / name).is_dir() for name in PACKAGES)
