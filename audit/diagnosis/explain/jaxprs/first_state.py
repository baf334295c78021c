"""The first state of a training by NumPy: XLA would compile each draw of it, and a replay needs no last digit."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from audit.diagnosis.explain.jaxprs.evaluate import inner
from audit.diagnosis.explain.jaxprs.key_words import as_keys, as_words
from mechanisms.networks import INITIAL_SEED


def begun(code: Any) -> Any:
    """The same training with that state at hand; as it is where it has begun, is no training, or cannot be traced."""
    if not hasattr(code, "init") or "_start" in vars(code):
        return code
    from mechanisms.adapters.for_jax import JaxTraining

    return dataclasses.replace(code, init=_computed(code.init)) if isinstance(code, JaxTraining) else code


def _computed(init: Any) -> Any:
    key = jax.random.key(INITIAL_SEED)
    try:
        # what ``init`` keeps elsewhere must be arrays: then it runs once more as it is
        with jax.checking_leaks():
            closed, shapes = jax.make_jaxpr(init, return_shape=True)(key)
        with jax.enable_x64(True), np.errstate(all="ignore"):
            leaves = list(map(as_keys, inner(closed, [as_words(key)])))
    except Exception:
        return init
    loose = [aval.weak_type for aval in closed.out_avals]
    leaves = [leaf.item() if weak else leaf for leaf, weak in zip(leaves, loose, strict=True)]
    state = jax.tree.unflatten(jax.tree.structure(shapes), leaves)
    return lambda key: jax.tree.map(jnp.asarray, state)
