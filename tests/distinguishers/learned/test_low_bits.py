"""Bits that float32 rounds away: found by the audit that looks at them, and absent where the sum is exact."""

import jax
import numpy as np
import pytest

import audit
import distinguishers
import guarantees
import mechanisms
from distinguishers.learned.low_bits import OF_ZERO, low_bits

lowest_bits = jax.jit(low_bits)


def float32_sum(seed, data):
    """Noise drawn in float32 and added in float32, as JAX and PyTorch do."""
    noise = np.random.default_rng(seed).standard_normal(1, dtype=np.float32)
    return data.sum(0, dtype=np.float32) + noise


def exact_sum(seed, data):
    """Added in float64 and rounded once."""
    return (data.sum(0, dtype=np.float64) + np.random.default_rng(seed).standard_normal(1)).astype(np.float32)


@pytest.mark.parametrize(
    ("value", "lowest"), [(1.0, 0), (3.0, 0), (0.75, -2), (1 + 2**-23, -23), (2.0**-140, -140), (0.0, OF_ZERO)]
)
def test_the_lowest_bit_is_found(value, lowest):
    assert lowest_bits(np.float32([value]))[0] == lowest


def test_a_quarter_of_the_outputs_is_impossible_with_the_record():
    data = np.zeros((1, 1), np.float32), np.array([[0.0], [1.0]], np.float32)
    lowest = [np.array([lowest_bits(float32_sum(seed, side))[0] for seed in range(300)]) for side in data]
    assert (lowest[1] >= -24).all()
    assert 0.15 < (lowest[0] < -24).mean() < 0.36


@pytest.mark.parametrize(("release", "found"), [(float32_sum, True), (exact_sum, False)])
def test_the_audit_finds_rounding_and_accuses_no_exact_sum(release, found):
    pair = mechanisms.scalar_pair()
    record = audit.run_audit(
        mechanisms.callable_step(release),
        pair,
        distinguishers.fit(low_bits),
        claim=guarantees.gaussian(mu=1.0),
        trials=1000,
        risk=0.05,
        key=jax.random.key(0),
        target="epsilon",
        diagnose=False,
    )
    assert (record.verdict == "violation") is found


@pytest.mark.long
def test_bounds_from_low_bits_hold():
    """An exact sum at its own claim, 40 audits at risk .1: 12 or more false ones have probability 4e-4 at most."""
    pair = mechanisms.scalar_pair()
    false = 0
    for seed in range(40):
        record = audit.run_audit(
            mechanisms.callable_step(exact_sum),
            pair,
            distinguishers.fit(low_bits),
            claim=guarantees.gaussian(mu=1.0),
            trials=200,
            risk=0.1,
            key=jax.random.key(seed),
            diagnose=False,
        )
        false += record.verdict == "violation" or record.mu > 1.0
    assert false < 12
