"""Records of one cheap run, made once."""

import dataclasses

import pytest

import distinguishers
import guarantees
import mechanisms
from audit.procedure import run_audit
from audit.trials.keys import key_from_seed

HOSTILE = (
    "</script><script>alert(1)</script> \"q\" 's' | & % $ # _ { } ~ ^ \\ \x1b[31m\x00 \u202eabc 😀\nnext =1+1 "
    + "x" * 10_000
)


@pytest.fixture(scope="session")
def violation():
    """Half of the noise that the claim supposes."""
    pair, step = mechanisms.scalar_pair(sensitivity=1.0), mechanisms.gaussian_mechanism(noise_multiplier=0.5)
    return run_audit(
        step,
        pair,
        distinguishers.likelihood_ratio(step, pair),
        claim=guarantees.gaussian(mu=1.0),
        trials=4000,
        risk=0.05,
        key=key_from_seed(1),
        name="half the noise",
    )


@pytest.fixture(scope="session")
def hostile(violation):
    """A record whose names try to break every format."""
    return dataclasses.replace(violation, name=HOSTILE, reason=HOSTILE)
