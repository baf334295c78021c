"""Trade-off curves of every kind, for property tests."""

from __future__ import annotations

import hypothesis
import numpy as np
from hypothesis import strategies as st

import guarantees
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.trade_off import TradeOff

ALL = hypothesis.settings().max_examples
some = hypothesis.settings(max_examples=ALL * 2 // 5)
few = hypothesis.settings(max_examples=ALL // 5)

scales = st.floats(0.05, 4.0)
rates = st.floats(0.001, 1.0)
levels = st.floats(0.0, 1.0)


def discrete_curve(losses, weights):
    """A pair with these finite losses: the weights are tilted until both sides sum to one."""
    losses = np.unique(np.round(losses, 6))
    weights = np.resize(np.asarray(weights, float), losses.shape)
    # With masses w e^(-l/2) and w e^(l/2), one constant shift of the losses makes both sums equal.
    without, sampled = weights * np.exp(-losses / 2), weights * np.exp(losses / 2)
    shift = np.log(without.sum() / sampled.sum())
    law = DiscreteLaw(losses + shift, without / without.sum(), sampled / sampled.sum())
    return TradeOff(law)


discrete = st.builds(
    discrete_curve,
    st.lists(st.floats(-3, 3), min_size=2, max_size=8),
    st.lists(st.floats(0.05, 1.0), min_size=1, max_size=8),
)
simple = st.one_of(
    st.builds(lambda mu: guarantees.gaussian(mu=mu).curve, scales),
    st.builds(lambda e: guarantees.laplace(epsilon=e).curve, scales),
    st.builds(lambda e: guarantees.randomised_response(epsilon=e).curve, scales),
    st.builds(lambda e, d: guarantees.epsilon_delta(epsilon=e, delta=d).curve, scales, st.floats(0, 0.5)),
    st.builds(
        lambda q, s: guarantees.subsampled_gaussian(rate=q, noise_multiplier=s).curve, rates, st.floats(0.3, 5.0)
    ),
    st.builds(
        lambda q, s: guarantees.subsampled_gaussian(rate=q, noise_multiplier=s, relation="substitution").curve,
        rates,
        st.floats(0.3, 5.0),
    ),
    discrete,
)
any_curve = st.one_of(
    simple,
    st.builds(lambda f: f.symmetrise(), simple),
    st.builds(lambda f: f.reverse, simple),
    st.builds(lambda f, g, w: f.mixture(g, weights=[w, 1 - w]), simple, simple, levels),
)
