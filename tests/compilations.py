"""How often XLA was asked to compile, as JAX itself reports it."""

import collections
import contextlib
import dataclasses

import jax

COMPILED = "/jax/core/compile/backend_compile_duration"
TRACED = "/jax/core/compile/jaxpr_trace_duration"
_heard = collections.Counter()


def _listen(event, seconds, **_):
    _heard[event] += 1


jax.monitoring.register_event_duration_secs_listener(_listen)


@dataclasses.dataclass
class Counted:
    compiled: int = 0
    traced: int = 0


@contextlib.contextmanager
def compilations():
    """Counts programs compiled and functions traced inside the block."""
    before, counted = _heard.copy(), Counted()
    yield counted
    counted.compiled = _heard[COMPILED] - before[COMPILED]
    counted.traced = _heard[TRACED] - before[TRACED]
