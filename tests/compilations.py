"""How often XLA was asked to compile, as JAX itself reports it."""

import collections
import contextlib
import dataclasses

import jax

COMPILED = "/jax/core/compile/backend_compile_duration"
TRACED = "/jax/core/compile/jaxpr_trace_duration"
_heard = collections.Counter()
_names = []


def _listen(event, seconds, fun_name="", **_):
    _heard[event] += 1
    if event == COMPILED:
        _names.append(fun_name)


jax.monitoring.register_event_duration_secs_listener(_listen)


@dataclasses.dataclass
class Counted:
    compiled: int = 0
    traced: int = 0
    names: list = dataclasses.field(default_factory=list)


@contextlib.contextmanager
def compilations():
    """Counts programs compiled and functions traced inside the block."""
    before, known, counted = _heard.copy(), len(_names), Counted()
    yield counted
    counted.compiled = _heard[COMPILED] - before[COMPILED]
    counted.traced = _heard[TRACED] - before[TRACED]
    counted.names = _names[known:]
