"""JAX, loaded when it is first used: what only builds parts, to ask for their curves, does without it.

from dpsgd_audit.later import jax, jnp
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

T = TypeVar("T", bound=Callable[..., Any])

if TYPE_CHECKING:
    import jax as jax
    import jax.numpy as jnp
    from jax import lax as lax
    from typing_extensions import TypeIs
else:

    class _Later:
        """A module that is imported when something in it is asked for."""

        def __init__(self, name: str):
            self._name = name
            self._module: ModuleType | None = None

        def __getattr__(self, name: str) -> Any:
            if self._module is None:
                self._module = importlib.import_module(self._name)
            return getattr(self._module, name)

    jax, jnp, lax = _Later("jax"), _Later("jax.numpy"), _Later("jax.lax")


def jitted(*, static_argnames: str | Sequence[str] = ()) -> Callable[[T], T]:
    """``jax.jit`` for a function of a module that is imported before JAX is."""

    def decorate(function: T) -> T:
        compiled = functools.cache(lambda: jax.jit(function, static_argnames=static_argnames))

        @functools.wraps(function)
        def call(*given: Any, **more: Any) -> Any:
            return compiled()(*given, **more)

        return call  # pyright: ignore[reportReturnType]

    return decorate


def is_array(value: object) -> TypeIs[np.ndarray | jax.Array]:
    """Whether it is an array of NumPy or of JAX, of which there are none where JAX is not loaded."""
    return isinstance(value, np.ndarray) or ("jax" in sys.modules and isinstance(value, jax.Array))


def once_loaded(act: Callable[[], None]) -> None:
    """Act as soon as JAX is loaded, whoever loads it: now, if it is."""
    if "jax" in sys.modules and _watch not in sys.meta_path:
        act()
        return
    _watch.actions.append(act)
    if _watch not in sys.meta_path:
        sys.meta_path.insert(0, _watch)


class _Watch:
    """Sees JAX being imported, and acts when that is done."""

    def __init__(self):
        self.actions: list[Callable[[], None]] = []
        self._asking = False

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The specification that the others find, with a loader that acts at the end."""
        if name != "jax" or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_act(module: ModuleType) -> None:
                load(module)
                sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
                while self.actions:
                    self.actions.pop(0)()

            spec.loader.exec_module = load_and_act
        return spec


_watch = _Watch()
