"""A lower bound on what shuffling leaks when queries are adaptive: strategies that were found, with proofs."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

from guarantees.answers import answers
from guarantees.checks import Count, checked, require
from guarantees.claim import Claim
from guarantees.laws.composition import composed_law
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.law import Certificate, LossLaw, Tails, invert, reverse
from guarantees.numerics.array import Array
from guarantees.shuffling.fixed_batch import FixedBatchLaw
from guarantees.shuffling.fixed_batch_bounds import fixed_batch_event
from guarantees.shuffling.query_game import Outcome, QueryGame
from guarantees.shuffling.stop_loss import Kind
from guarantees.trade_off import TradeOff

RATIO = 1.03
"""Strategies are computed for powers of this; at an epsilon the two nearest ones are used."""
FIRST_POWER = -300
"""Below this power, 1.4e-4, the strategy for epsilon 0 is used."""
SMALLEST_DELTA = 1e-9
COMPOSED_SHARES = (0.0, 1 / 16, 1 / 4)
"""Strategies composed over epochs, as shares of the epsilon at which almost nothing leaks."""
COMPOSED_POINTS = 2**16
"""Lattice points of their composition: a coarser lattice only shows less."""
KINDS: tuple[Kind, Kind] = ("with_given_without", "without_given_with")
LEAST_MASS = 1e-12
"""Least mass on either side of a group of lumped states: below it are rounding errors."""
PROVED = (
    "delta from below, at every epsilon and in each direction: some query method, all other records alike, leaks at "
    "least the game's value. Not a guarantee: others may leak more"
)
ESTIMATED = "where it is the larger one, the value of the fixed pair P_S/Q_S, about 1e-7"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Attained:
    """Probabilities on both sides of events, each attained by some strategy, in the order of one direction."""

    first: Array
    """Probability of each event on the side where it should be likely: with the record, for with_given_without."""
    second: Array

    def best(self, epsilon: float) -> tuple[float, float]:
        """Both probabilities of the event with the largest ``first - e^eps second``."""
        at = int(np.argmax(self.first - math.exp(min(epsilon, 600.0)) * self.second))
        return float(self.first[at]), float(self.second[at])

    def allowing(self, error: float) -> Attained:
        """The probabilities moved by ``error`` to the safe side."""
        return Attained(first=np.maximum(self.first - error, 0.0), second=np.minimum(self.second + error, 1.0))


def joined(parts: list[Attained]) -> Attained:
    """All events of several lists, and the event that never happens."""
    none = np.zeros(1)
    return Attained(
        first=np.concatenate([none, *(part.first for part in parts)]),
        second=np.concatenate([none, *(part.second for part in parts)]),
    )


def upper_events(outcome: Outcome, kind: Kind) -> Attained:
    """The events 'the last state is at least this high', for every state."""
    masses = (outcome.with_record, outcome.without)
    first, second = masses if kind == "with_given_without" else masses[::-1]
    return Attained(first=np.cumsum(first[::-1]), second=np.cumsum(second[::-1])).allowing(outcome.error)


def lumped_law(outcome: Outcome, kind: Kind) -> DiscreteLaw:
    """Law of the loss of the last state, with neighbouring states lumped until the loss increases with the state."""
    order = slice(None) if kind == "with_given_without" else slice(None, None, -1)
    lumps: list[tuple[float, float]] = []
    for with_record, without in zip(outcome.with_record[order], outcome.without[order], strict=True):
        a, b = float(with_record), float(without)
        while lumps and (min(lumps[-1]) < LEAST_MASS or lumps[-1][0] * b >= a * lumps[-1][1]):
            a, b = a + lumps[-1][0], b + lumps[-1][1]
            lumps.pop()
        lumps.append((a, b))
    while len(lumps) > 1 and min(lumps[-1]) < LEAST_MASS:
        a, b = lumps.pop()
        lumps[-1] = (lumps[-1][0] + a, lumps[-1][1] + b)
    masses = np.array(lumps)
    masses /= masses.sum(axis=0)
    return DiscreteLaw(np.log(masses[:, 0] / masses[:, 1]), masses[:, 1], masses[:, 0])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Strategies:
    """The best strategies found, one per epsilon of a fixed list and direction, computed on first use."""

    rounds: int
    noise_multiplier: float
    _known: dict[tuple[Kind, float], Outcome] = dataclasses.field(default_factory=dict, repr=False)
    _composed: dict[int, dict[Kind, Attained]] = dataclasses.field(default_factory=dict, repr=False)

    def outcome(self, kind: Kind, epsilon: float) -> Outcome:
        """Outcome of the strategy for one epsilon, cached."""
        if (kind, epsilon) not in self._known:
            game = QueryGame(rounds=self.rounds, noise_multiplier=self.noise_multiplier, epsilon=epsilon, kind=kind)
            self._known[kind, epsilon] = game.play(game.strategy())
        return self._known[kind, epsilon]

    def event(self, kind: Kind, epsilon: float) -> tuple[float, float]:
        """Probabilities on both sides of the event that leaks most at an epsilon; (0, 0) if no leak is shown."""
        mu = 1 / self.noise_multiplier
        # the fixed order, which leaks at least as much, leaks less than 1e-12 here
        if epsilon > (7.1 + mu / 2) * mu:
            return 0.0, 0.0
        power = math.floor(math.log(epsilon, RATIO)) if epsilon > 0 else FIRST_POWER - 1
        near = [RATIO**k if k >= FIRST_POWER else 0.0 for k in (power, power + 1)]
        return joined([upper_events(self.outcome(kind, one), kind) for one in sorted(set(near))]).best(epsilon)

    def composed(self, times: int) -> dict[Kind, Attained]:
        """Events of a few strategies, each played in every epoch; cached."""
        if times not in self._composed:
            self._composed[times] = self._compose(times)
        return self._composed[times]

    def _compose(self, times: int) -> dict[Kind, Attained]:
        event = fixed_batch_event(rounds=self.rounds, noise_multiplier=self.noise_multiplier, cut_step=0.0)
        high = float(event.epsilon(SMALLEST_DELTA))
        found: dict[Kind, list[Attained]] = {kind: [] for kind in KINDS}
        for kind, share in itertools.product(KINDS, COMPOSED_SHARES):
            outcome = self.outcome(kind, share * high)
            law = composed_law([(lumped_law(outcome, kind), times)], most_points=COMPOSED_POINTS)
            certificate = law.certificate
            known = law if certificate is None else certificate.leaked
            vertices = None if known is None else known.vertices
            if vertices is None:
                continue
            error = times * outcome.error + (0.0 if certificate is None else certificate.round_off)
            pairs = (vertices.with_above, vertices.without_above), (vertices.without_below, vertices.with_below)
            for way, (first, second) in zip(KINDS, pairs, strict=True):
                found[way].append(Attained(first=first, second=second).allowing(error))
        return {kind: joined(parts) for kind, parts in found.items()}


@answers(is_pair=False)
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AdaptiveLaw(LossLaw):
    """At each threshold, the line of the leakier of two attained events: the game's or the fixed pair's.

    At a threshold t >= 0 the direction is with_given_without at epsilon t, at t < 0 the other one at -t. ``pair`` is
    the fixed pair P_S/Q_S, whose tails are numerics; without it every line is proved.
    """

    strategies: Strategies
    pair: LossLaw | None
    times: int = 1
    error: float = 1e-7
    """Error of the fixed pair."""

    @property
    def certificate(self) -> Certificate:
        """A one-sided certificate: what surely leaks, and no promise."""
        proven = self if self.pair is None else dataclasses.replace(self, pair=None)
        return Certificate(proved=PROVED, estimated=ESTIMATED, round_off=self.error, leaked=proven)

    @property
    def support(self) -> tuple[float, float] | None:
        """Range of the fixed pair's losses, which is unbounded."""
        return None if self.pair is None else self.pair.support

    def _event(self, kind: Kind, epsilon: float) -> tuple[float, float]:
        if self.times == 1:
            return self.strategies.event(kind, epsilon)
        return self.strategies.composed(self.times)[kind].best(epsilon)

    def _game_tails(self, threshold: Array) -> Tails:
        t = np.asarray(threshold, float)
        above, below = np.zeros((2, t.size)), np.zeros((2, t.size))
        for i, at in enumerate(t.ravel()):
            # each list: without the record, with it
            if at >= 0:
                with_record, without = self._event("with_given_without", float(at))
                above[:, i], below[:, i] = (without, with_record), (1 - without, 1 - with_record)
            else:
                without, with_record = self._event("without_given_with", float(-at))
                below[:, i], above[:, i] = (without, with_record), (1 - without, 1 - with_record)
        (without_above, with_above), (without_below, with_below) = (
            rates.reshape(2, *t.shape) for rates in (above, below)
        )
        return Tails(
            without_above=without_above, without_below=without_below, with_above=with_above, with_below=with_below
        )

    def tails(self, threshold: Array) -> Tails:
        """Tails of the event that leaks more at this threshold: the game's or the pair's."""
        t = np.asarray(threshold, float)
        own = self._game_tails(t)
        if self.pair is None:
            return own
        other = self.pair.tails(t)
        better = _gain(other, t) > _gain(own, t)
        names = [field.name for field in dataclasses.fields(Tails)]
        return Tails(**{name: np.where(better, getattr(other, name), getattr(own, name)) for name in names})

    def far_delta(self, epsilon: Array) -> Array:
        """Delta 0: no leak is shown at epsilons this large."""
        return np.zeros(np.shape(epsilon))

    def reversed_far_delta(self, epsilon: Array) -> Array:
        """Delta 0: no leak is shown at epsilons this large."""
        return np.zeros(np.shape(epsilon))

    def threshold(self, alpha: Array) -> Array:
        """Threshold of the game or of the pair, whichever has the higher line at this level: that proves less."""
        level = np.asarray(alpha, float)
        own = invert(self._game_tails, level)
        if self.pair is None:
            return own
        other = self.pair.threshold(level)
        return np.where(self._line(other, level) > self._line(own, level), other, own)

    def reversed_threshold(self, alpha: Array) -> Array:
        """Threshold for the exchanged pair, chosen in the same way."""
        level = np.asarray(alpha, float)
        exchanged = reverse(self)
        own = invert(lambda t: reverse(dataclasses.replace(self, pair=None)).tails(t), level)
        if self.pair is None:
            return own
        other = self.pair.reversed_threshold(level)
        return np.where(_line(exchanged, other, level) > _line(exchanged, own, level), other, own)

    def _line(self, threshold: Array, alpha: Array) -> Array:
        return _line(self, threshold, alpha)

    def compose(self, times: int) -> LossLaw:
        """Composition of each strategy, played in every epoch, beside that of the pair."""
        if times == 1:
            return self
        if self.pair is None:
            return dataclasses.replace(self, times=self.times * times)
        pair = composed_law([(self.pair, times)])
        return dataclasses.replace(self, pair=pair, times=self.times * times, error=pair.error)


def _gain(tails: Tails, threshold: Array) -> Array:
    """Delta of the lines: for with_given_without above 0, for the other direction below."""
    with np.errstate(over="ignore", invalid="ignore"):
        up = tails.with_above - np.where(tails.without_above > 0, np.exp(threshold) * tails.without_above, 0.0)
        down = tails.without_below - np.where(tails.with_below > 0, np.exp(-threshold) * tails.with_below, 0.0)
    return np.where(threshold >= 0, up, down)


def _line(law: LossLaw, threshold: Array, alpha: Array) -> Array:
    """Height at ``alpha`` of the lines at these thresholds."""
    at = np.clip(threshold, -500.0, 500.0)
    tails = law.tails(at)
    return tails.with_below - np.exp(at) * (alpha - tails.without_above)


@checked
def adaptive_shuffle(*, rounds: Count, noise_multiplier: float, epochs: Count = 1) -> Claim:
    """What shuffled fixed-size batches leak at least when queries are adaptive. (ours)

    All records but one are alike; after every batch the query method chooses whether they get -1 or +1, by a rule
    that a dynamic programme finds for each epsilon (to 3%) and direction. What a rule leaks is then computed from
    below, rounding included (docs/adaptive-shuffling.md). At each epsilon the curve is the larger of this game
    and ``fixed_batch_shuffle``, which it shows not to be the worst case [chua2024, conjecture 3.2].

    A LOWER bound of the leak, NOT a guarantee: for that, ``fixed_batch_upper``. Queries in a plane leak a little more
    (up to .4% in delta where they were tried), and rules that tell the other records apart may leak more.

    More than 64 rounds are taken in 64 blocks, within which the query stays: there the bound is weaker. Tried from 2
    to 10,000 rounds; a delta takes 0.1 s for 2 rounds and 2 s from 64 rounds on, epsilon at a delta 2 to
    15 s. Several epochs take 5 to 25 s, most of them for the composition of ``fixed_batch_shuffle``, longest below a
    noise multiplier of .6; only a few rules are tried there, each played in every epoch.

    Args:
      rounds: batches in one epoch, at least 1.
      noise_multiplier: standard deviation of the noise over the clipping norm, at least 0.2.
      epochs: independently shuffled epochs, at least 1.

    Returns:
      The claim, for zero_out neighbours: any adaptive training of this kind leaks at least so much.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> round(guarantees.adaptive_shuffle(rounds=2, noise_multiplier=1.0).delta(1.0), 4)
      0.118
      >>> round(guarantees.fixed_batch_shuffle(rounds=2, noise_multiplier=1.0).delta(1.0), 4)  # no adaptive queries
      0.1172
    """
    require("noise_multiplier", noise_multiplier >= 0.2, ">= 0.2 (numerics)", noise_multiplier)
    sigma = float(noise_multiplier)
    law: LossLaw = GaussianLaw(mu=1 / sigma)
    if rounds > 1:
        strategies = Strategies(rounds=int(rounds), noise_multiplier=sigma)
        law = AdaptiveLaw(strategies=strategies, pair=FixedBatchLaw(int(rounds), sigma))
    claim = Claim(
        curve=TradeOff(law),
        name="adaptive_shuffle",
        parameters={"rounds": rounds, "noise_multiplier": noise_multiplier},
        relation="zero_out",
        unit="epoch",
        steps=int(rounds),
        observation="all batch sums of one shuffled epoch with noise, queries adaptive: a leak at least",
        source="docs/adaptive-shuffling.md, a lower bound of the leak; chua2024, equations 1 and 2",
    )
    return claim if epochs == 1 else claim.compose(int(epochs))
