"""Opacus's searches for the noise multiplier of a target epsilon: one of the same numbers is made once."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from mechanisms.adapters.watched_calls import replaced

MODULE, SEARCH = "opacus.privacy_engine", "get_noise_multiplier"
"""Where ``make_private_with_epsilon`` finds the search: seconds of every trial, where nothing is drawn."""


@contextlib.contextmanager
def searches_kept() -> Iterator[None]:
    """While a training runs, if Opacus is there before."""
    engine = sys.modules.get(MODULE)
    search = getattr(engine, SEARCH, None)
    if engine is None or search is None:
        yield
        return
    with replaced(engine, SEARCH, functools.wraps(search)(functools.partial(_known, search))):
        yield


def _known(search: Callable[..., float], **given: Any) -> float:
    try:
        return _found(search, tuple(sorted(given.items())))
    except TypeError:
        # an argument that cannot be a key
        return search(**given)


@functools.lru_cache(maxsize=256)
def _found(search: Callable[..., float], given: tuple[tuple[str, Any], ...]) -> float:
    return search(**dict(given))
