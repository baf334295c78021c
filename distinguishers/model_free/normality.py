"""Algorithm 1 of [wang2026]: normalise under both hypotheses, test for normality, let all batches vote."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from distinguishers.contract import OneScore
from distinguishers.exact.likelihood import model_parameters, round_model
from distinguishers.exact.mixture import Component
from distinguishers.model_free.normal_statistics import STATISTICS, critical_value, deviance
from distinguishers.span_coordinates import Frame
from guarantees.checks import checked, require
from guarantees.trade_off import TradeOff
from mechanisms.contract import Mechanism, OutputKind
from mechanisms.names import name_of
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.simulators.one_round import CollapsedRound, OneRound

NormalTest = Literal["chi_square", "kolmogorov_smirnov", "anderson_darling", "cramer_von_mises", "moments"]
MOST_INSERTED = 8
"""Most coordinates in the span that are inserted into a sorted rest instead of sorting the whole vector."""
TIE_WIDTH = 1e-6
"""Vote counts that tie are spread over this width; votes differ by more unless there are a million of them."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NormalityTest(OneScore):
    """The vote of one intermediate distinguisher for each possible batch."""

    mechanism: OneRound | CollapsedRound
    neighbours: Neighbours
    test: NormalTest
    level: float | None
    frame: Frame
    components: tuple[Component, ...]
    duels: tuple[tuple[int, int], ...]
    """Components without and with the record that hold for the same batch."""
    weights: np.ndarray
    """Weights of the batches of each duel, shape (duels, batches); they sum to 1."""
    limit: float
    name: str = "normality_test"
    curve: TradeOff | None = None

    @property
    def accepts(self) -> tuple[OutputKind, ...]:
        """Kinds of output: the chi-square test needs only collapsed statistics, the others every coordinate."""
        return ("vector", "collapsed") if self.test == "chi_square" else ("vector",)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model, the pair and the test."""
        return {**model_parameters(self.mechanism, self.neighbours), "test": self.test, "level": self.level}

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """Share of the votes for 'with the record' minus one half."""
        if not self.duels:
            return TIE_WIDTH * jax.random.uniform(key, minval=-1.0)
        draws = jax.random.uniform(key, (self.weights.size + 1,))
        found = self._statistics(output)
        batches = self.weights.shape[1]
        without, with_record = (
            jnp.stack([jnp.broadcast_to(found[duel[side]], (batches,)) for duel in self.duels]) for side in (0, 1)
        )
        coins = draws[1:].reshape(without.shape) < 0.5
        if self.level is None:
            votes = jnp.where(without == with_record, coins, with_record < without)
        else:
            pass0, pass1 = without <= self.limit, with_record <= self.limit
            votes = jnp.where(pass0 == pass1, coins, pass1)
        share = jnp.sum(jnp.asarray(self.weights, jnp.float32) * (votes.astype(jnp.float32) - 0.5))
        broken = jnp.any(jnp.isnan(without)) | jnp.any(jnp.isnan(with_record))
        return jnp.where(broken, jnp.nan, share + TIE_WIDTH * (2 * draws[0] - 1))

    def _statistics(self, output: Any) -> list[jax.Array]:
        """The test's statistic after normalising under every law, shape (batches,) for each component."""
        if self.test == "chi_square":
            return self._norm_statistics(output)
        z = self.frame.standardised(output)
        # a statistic of order would take infinity for a large number
        z = jnp.where(jnp.all(jnp.isfinite(z)), z, jnp.nan)
        statistic = STATISTICS[self.test]
        means = [jnp.asarray(component.means, jnp.float32) for component in self.components]
        scales = [
            np.broadcast_to(np.sqrt(np.asarray(component.precision, np.float32)), len(component.means))
            for component in self.components
        ]
        rank = self.frame.rank
        if self.frame.basis is None and rank <= MOST_INSERTED:
            different, which = np.unique(np.concatenate(scales), return_inverse=True)
            heads = (z[:rank] - jnp.concatenate(means)) * different[which][:, None]
            found = statistic.beside(z[rank:], jnp.asarray(different), heads, which)
            return jnp.split(found, np.cumsum([len(scale) for scale in scales])[:-1])

        def one(mean: jax.Array, scale: jax.Array) -> jax.Array:
            return statistic((z - self.frame.embedded(mean)) * scale)

        return [jax.vmap(one)(mean, jnp.asarray(scale)) for mean, scale in zip(means, scales, strict=True)]

    def _norm_statistics(self, output: Any) -> list[jax.Array]:
        """The statistic by sufficient statistics: one pass over the output for all batches."""
        reading = self.frame.read(output)
        n, rank = self.frame.dimension, self.frame.rank
        found = []
        for component in self.components:
            distance = jnp.sum((reading.along - jnp.asarray(component.means, jnp.float32)) ** 2, axis=-1)
            excess = ((n - rank) * reading.excess + (distance - rank)) / n
            precision = jnp.asarray(component.precision, jnp.float32)
            surplus = jnp.asarray(component.precision - 1.0, jnp.float32)
            found.append(deviance(surplus + precision * excess, n))
        return found


@checked
def normality_test(
    mechanism: Mechanism,
    neighbours: Neighbours,
    *,
    test: NormalTest = "chi_square",
    level: float | None = 0.05,
) -> NormalityTest:
    """Does the output look more normal when normalised as if the record were there? [wang2026, algorithm 1]

    For each batch B of the common records and each choice 'differing record in or out', an intermediate
    distinguisher subtracts the batch's mean and divides by its noise under both hypotheses, and tests both vectors
    for being i.i.d. standard normal. If exactly one passes at ``level`` it votes for that hypothesis, otherwise for a
    coin's (the paper's words have the two votes exchanged). Each subset of records has one vote. Score: share of votes
    for 'with' minus 1/2; 0 is the majority vote, ties broken by the key.

    Batches with equal sums share their coin. Where both hypotheses normalise alike (a realised batch without the
    record) the vote would be a mere coin and is left out. Weaker than the likelihood ratio: the mixture's weights are
    not used.

    Args:
      mechanism: a model of one round, ``mechanisms.one_round(...)``, or its ``collapsed()``.
      neighbours: the pair of gradients.
      test: ``"chi_square"``, ``"kolmogorov_smirnov"``, ``"anderson_darling"``, ``"cramer_von_mises"`` or ``"moments"``.
      level: of the test, in (0, 1). None lets the smaller statistic win instead, which decides what passing leaves to
        coins: both vectors have the same length, so statistics are ordered as their p-values are.

    Returns:
      The score.

    Raises:
      ValueError: an argument is not one of these values, or the mechanism is not a model of one round.

    Examples:
      >>> import distinguishers, mechanisms
      >>> step = mechanisms.one_round(normalise_by="expected_batch", rate=0.5, clip=1.0, noise_multiplier=1.0)
      >>> pair = mechanisms.worst_case_pair(records=4, dimension=30, clip=1.0)
      >>> distinguishers.normality_test(step, pair, level=None).parameters["test"]
      'chi_square'
    """
    require("level", level is None or 0 < level < 1, "None or in (0, 1)", level)
    if not isinstance(mechanism, OneRound | CollapsedRound):
        raise ValueError(
            f"normality_test needs a model of one round (mechanisms.one_round(...)), got {name_of(mechanism)!r}."
        )
    model = round_model(mechanism, neighbours)
    ends = model.ends
    inside0 = ends.without_out if ends.without_in is None else ends.without_in
    inside1 = ends.with_out if ends.with_in is None else ends.with_in
    rate = mechanism.rate
    candidates = [((ends.without_out, ends.with_out), 1 - rate), ((inside0, inside1), rate)]
    duels = tuple(duel for duel, chance in candidates if duel[0] != duel[1] and chance > 0)
    ways = np.exp(model.batches.log_ways - model.batches.log_ways.max())
    weights = np.array([ways for _ in duels])
    return NormalityTest(
        mechanism=mechanism,
        neighbours=neighbours,
        test=test,
        level=level,
        frame=model.frame,
        components=model.components,
        duels=duels,
        weights=weights / max(weights.sum(), 1e-300),
        limit=0.0 if level is None else critical_value(test, model.pair.dimension, level),
    )
