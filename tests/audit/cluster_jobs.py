"""Audits for tests of clusters, importable by workers."""

import jax
import numpy as np
from toys import PAIR, First, Shift

import audit
import guarantees
import mechanisms

CLAIM = guarantees.gaussian(mu=1.0)
KEY = jax.random.key(7)
ROWS = mechanisms.pair(np.zeros((1, 3)), np.array([[1.0, 0.0, 0.0]]), relation="zero_out")


def record(mechanism=None, neighbours=PAIR, *, trials=4000, policy=None, **execution):
    """A record, less what no two runs share."""
    given = {"claim": CLAIM, "trials": trials, "policy": policy, "execution": audit.Execution(**execution)}
    found = audit.run_audit(mechanism or Shift(mu=1.0), neighbours, First(), risk=0.05, key=KEY, **given).to_json()
    return {key: value for key, value in found.items() if key not in ("seconds", "started")}
