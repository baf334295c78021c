"""Code that a suite names, imported: the only place where that happens."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from audit.suites.suite import AuditSpec, UnbuiltError
from audit.trials.user_code_errors import passes, raised_at, sentence


def load(path: str, word: str, spec: AuditSpec, where: str) -> Any:
    """What `package.module:name` is, in an installed package or in the working folder; ``where`` the suite says it."""
    if os.getcwd() not in sys.path:
        # the last place: a file of the user's called mechanisms.py must not stand in for ours
        sys.path.append(os.getcwd())
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnbuiltError(
            f"{where}: cannot import {word} = {path!r} ({sentence(error)}); write it as 'package.module:name', "
            "importable from where dpsgd-audit runs."
        ) from error
    except BaseException as error:
        if passes(error):
            raise
        raise UnbuiltError(
            f"{where}: importing {word} = {path!r} of audit {spec.name!r} failed{raised_at(error)} "
            f"({sentence(error)}); fix the module: importing it must only define things."
        ) from error
