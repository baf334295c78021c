"""'My optimizer is the subsampled Gaussian mechanism': a class of audits that library authors subclass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mechanisms.neighbours import Relation

CONSTRUCTIONS = {
    "aligned": ("worst_case_pair", {"shared": 1.0}),
    "opposite": ("opposite_pair", {}),
    "orthogonal": ("orthogonal_pair", {}),
    "zero": ("zero_pair", {}),
}


class SubsampledGaussianConformance:
    """Ten audits of one DP-SGD step against the claim that accountants make about it.

    Subclass it in a test file and give ``make_step``. The step gets a key and an array of per-example gradients of
    shape (records, dimension), clips each to ``clip``, samples at ``rate``, adds noise and returns one vector.
    """

    trials = 10_000
    relation: Relation = "add_remove"

    def make_step(self, *, rate: float, clip: float, noise_multiplier: float) -> Callable[..., Any]:
        """One step of the implementation under audit."""
        raise TypeError(f"{type(self).__name__} must define make_step(self, *, rate, clip, noise_multiplier).")

    def _audit(self, dp_audit: Callable[..., Any], pair: Any, *, rate: float, noise: float, clip: float = 1.0) -> None:
        import guarantees

        step = self.make_step(rate=rate, clip=clip, noise_multiplier=noise)
        claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=noise, relation=self.relation)
        dp_audit(step, pair, claim=claim, trials=self.trials)

    @pytest.mark.parametrize("construction", CONSTRUCTIONS)
    @pytest.mark.parametrize("rate", [0.5, 1.0])
    def test_every_construction_at_moderate_noise(self, dp_audit, construction, rate):
        """Aligned, opposite, orthogonal and zero gradients in 50 dimensions."""
        import mechanisms

        kind, more = CONSTRUCTIONS[construction]
        pair = mechanisms.NEIGHBOURS[kind](records=3, dimension=50, clip=1.0, relation=self.relation, **more)
        self._audit(dp_audit, pair, rate=rate, noise=1.0)

    def test_many_dimensions_and_much_noise(self, dp_audit):
        """Where a divisor that depends on the data leaks most."""
        import mechanisms

        pair = mechanisms.worst_case_pair(records=4, dimension=1000, clip=0.1, relation=self.relation)
        self._audit(dp_audit, pair, rate=0.5, noise=10.0, clip=0.1)

    def test_gradients_longer_than_the_clipping_bound(self, dp_audit):
        """A gradient of ten times the bound must count as one of the bound."""
        import numpy as np

        import mechanisms

        shared = np.zeros((3, 20), np.float32)
        long = np.zeros(20, np.float32)
        long[0] = 10.0
        pair = mechanisms.neighbours_from_gradients(shared, long, relation=self.relation)
        self._audit(dp_audit, pair, rate=1.0, noise=1.0)
