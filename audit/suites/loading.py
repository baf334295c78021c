"""Import the code that a suite names; nothing else in this package does."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from audit.suites.suite import AuditSpec, UnbuiltError
from audit.trials.user_code_errors import passes, raised_at, sentence
from dpsgd_audit.spelling import did_you_mean

HOW = "write it as 'package.module:name', importable from where dpsgd-audit runs."


def load(path: str, word: str, spec: AuditSpec, where: str) -> Any:
    """Import the object `package.module:name`, installed or in the working folder; ``where`` the suite names it."""
    if os.getcwd() not in sys.path:
        # last, so that a user's file called mechanisms.py does not replace ours
        sys.path.append(os.getcwd())
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
    except BaseException as error:
        if passes(error):
            raise
        if _names_no_module(error, module):
            raise UnbuiltError(f"{where}: cannot import {word} = {path!r} ({sentence(error)}); {HOW}") from error
        reason = sentence(error) if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        raise UnbuiltError(
            f"{where}: importing {word} = {path!r} of audit {spec.name!r} failed{raised_at(error)} "
            f"({reason}); {_mend(error)}."
        ) from error
    if not name or not hasattr(found, name):
        known = [attribute for attribute in vars(found) if not attribute.startswith("_")]
        lacks = f"module {module!r} has no {name!r}{did_you_mean(name, known)}"
        raise UnbuiltError(f"{where}: cannot import {word} = {path!r} ({lacks}); {HOW}")
    return getattr(found, name)


def _mend(error: BaseException) -> str:
    """Advise about an error inside a module that was found."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install {error.name.partition('.')[0]!r}, which that line imports, or correct the line"
    if isinstance(error, ImportError):
        return "correct that import, or install the version that has it"
    return "fix the module: importing it must only define things"


def _names_no_module(error: BaseException, module: str) -> bool:
    """Whether the path itself is wrong, rather than what the module does when it is imported."""
    if isinstance(error, ModuleNotFoundError):
        return error.name is None or module == error.name or module.startswith(f"{error.name}.")
    # an empty name, or one with dots alone
    return isinstance(error, ValueError | TypeError) and not raised_at(error)
