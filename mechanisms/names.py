"""Names of users' objects, where they are found, and the arguments that they were given."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Mapping
from typing import Any

_BOUND: weakref.WeakKeyDictionary[Any, tuple[str, str] | None] = weakref.WeakKeyDictionary()


def name_of(given: Any) -> str:
    """The name of a user's object: its own ``name``, its function name, or its class."""
    if own := getattr(given, "name", None):
        return str(own)
    if (bound := _bound_to(given)) is not None:
        return bound[1]
    if isinstance(given, functools.partial):
        return name_of(given.func)
    name = str(getattr(given, "__name__", type(given).__name__))
    return f"lambda of {given.__module__}" if name == "<lambda>" else name


def place_of(function: Any) -> str:
    """Where a user's function is found, as suites write it: ``module:name``."""
    if (bound := _bound_to(function)) is not None:
        return ":".join(bound)
    if isinstance(function, functools.partial):
        return place_of(function.func)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', type(function).__module__)}:{name}"


def _bound_to(given: Any) -> tuple[str, str] | None:
    """Module and name bound to what a factory made (a closure, a lambda, a partial), which has no own name.

    All modules are looked through, for which a name that is asked for hundreds of times is too slow: the first answer
    stays.
    """
    if not isinstance(given, functools.partial) and "<" not in getattr(given, "__qualname__", ""):
        return None
    try:
        if given not in _BOUND:
            _BOUND[given] = _found(given)
        return _BOUND[given]
    except TypeError:  # it has no hash, or nothing may refer to it weakly
        return _found(given)


def _found(given: Any) -> tuple[str, str] | None:
    for place, module in list(sys.modules.items()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is given and not name.startswith("_"):
                return place, name
    return None


def parameters_of(given: Any) -> Mapping[str, Any]:
    """The arguments that a user's object says it was given; a function says nothing."""
    return getattr(given, "parameters", {})
