"""Counts and records on as many devices as there are, printed as JSON; run by test_devices.py with forced devices."""

import json
import sys

import jax
import numpy as np
from toys import PAIR, First, Shift

from audit.trials.both_sides import both_sides

EDGES = np.linspace(-3, 3, 13, dtype=np.float32)[None]
KEY = jax.random.key(11)


def counted(mechanism=None, neighbours=PAIR, distinguisher=None) -> list:
    """Ranges that begin and end anywhere, across 2^32 too, with a chunk that does not divide them."""
    sides = both_sides(mechanism or Shift(mu=1.0), neighbours)
    own = sides.scored(distinguisher or First(), chunk=64)[1].source(KEY)
    return [own.cells(*span, EDGES).tolist() for span in ((0, 1), (5, 1000), (2**32 - 300, 2**32 + 333))]


def everything() -> list:
    """Counts of a program of ours, and records of audits that learn, that stop early and that do neither."""
    import audit
    import distinguishers
    import guarantees
    import mechanisms

    pair = mechanisms.worst_case_pair(records=4, dimension=30, clip=0.1)
    step = mechanisms.one_round(normalise_by="expected_batch", rate=0.3, clip=0.1, noise_multiplier=1.0)
    claim = guarantees.subsampled_gaussian(rate=0.3, noise_multiplier=1.0)
    ratio = distinguishers.likelihood_ratio(step, pair)
    found = [counted(step, pair, ratio)]
    for score, policy in ((None, None), (ratio, audit.Anytime()), (ratio, None)):
        record = audit.run_audit(step, pair, score, claim=claim, trials=3000, risk=0.05, key=KEY, policy=policy)
        found.append({key: value for key, value in record.to_json().items() if key not in ("seconds", "started")})
    return found


if __name__ == "__main__":
    print(json.dumps([len(jax.devices()), {"counted": counted, "everything": everything}[sys.argv[1]]()]))
