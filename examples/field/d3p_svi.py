"""d3p: one update of DPSVI on all rows, clip 1, dp_scale 2; a row is one record's gradient at the start.

Promise (d3p/dputil.py:247): `approximate_sigma` finds the scale by 'the Fourier Accountant for the substitute
relation'. Exchanging a record moves a sum of clipped gradients by at most twice the bound: at dp_scale 2 one update is
a Gaussian mechanism of mu 1. Divisor (d3p/svi.py): the records in the batch, which substitution does not change.
"""

import d3p.random
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from d3p.svi import DPSVI
from numpyro.distributions import Delta, Normal
from numpyro.infer import Trace_ELBO
from numpyro.optim import SGD

MADE = {}


def model(rows):
    centre = numpyro.sample("centre", Normal(jnp.zeros(rows.shape[1]), 1e6).to_event(1))
    with numpyro.plate("rows", len(rows), len(rows)):
        numpyro.sample("row", Normal(centre, 1.0).to_event(1), obs=rows)


def guide(rows):
    weights = numpyro.param("weights", jnp.zeros(rows.shape[1]))
    numpyro.sample("centre", Delta(weights, event_dim=1))


def _made(rows):
    svi = DPSVI(model, guide, SGD(1.0), Trace_ELBO(), clipping_threshold=1.0, dp_scale=2.0)
    state = svi.init(d3p.random.PRNGKey(0), rows)
    return svi, state, jax.jit(lambda begun: svi.get_params(svi.update(begun, rows)[0])["weights"])


def release(seed, rows):
    key = rows.tobytes()
    if key not in MADE:
        MADE[key] = _made(jnp.asarray(rows))
    svi, state, step = MADE[key]
    return np.asarray(step(svi._update_state_rng(state, d3p.random.PRNGKey(seed % 2**63))))
