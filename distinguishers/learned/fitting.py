"""Distinguishers trained on outputs of their own: one half lays out features, the other trains a network over them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Container, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from distinguishers.contract import Distinguisher, OneScore, Reads
from distinguishers.learned import network
from distinguishers.learned.features import learn_features
from distinguishers.learned.output_rows import View
from guarantees.checks import require
from guarantees.numerics.ranks import ranks_of
from guarantees.trade_off import TradeOff
from mechanisms.contract import OutputKind
from mechanisms.names import name_of
from mechanisms.release import Layout
from mechanisms.structure import is_structured, structured

FEWEST = 20
"""Fewest outputs per side from which anything can be learned."""
SHARE = 0.4
"""Number of fit trials for each judged one, within the two limits below."""
LEAST, MOST = 200, 20_000
ALONE = 3
"""Number of single features that are members beside the network: the last is the best in the tails, the others by
ranks."""
TAIL = 0.95
"""Confidence of the limits on counts in the tails, which only rank features."""
RECORD = "record"
"""Feature along the record's gradient. For a transcript it is always a member: it alone needs no learning where a
direction among many weights is sought."""
REPLAYED = "replayed"
"""The feature along which the record moved the release on the same draws."""
ROUNDS = 4
"""Number of first rounds in which the record's gradient is sought separately."""
AT_ONCE = 2**22
"""Most coordinates whose features are computed at once."""

Read = Callable[[Any], jax.Array]


@structured(numbers=("read", "alone", "signs", "scaling", "weights"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Learned(Reads):
    """The network's score over all features, and scores of some single features, from one reading of an output."""

    read: Read
    """Computes the features of an output, shape (features,)."""
    names: tuple[str, ...]
    """Names of the members: the network, then single features."""
    alone: np.ndarray
    """Places of the single features among all."""
    signs: np.ndarray
    scaling: network.Scaling
    weights: Any
    trained_on: tuple[int, int]
    name: str = "learned"
    accepts: tuple[OutputKind, ...] = ("any",)
    curve: TradeOff | None = None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The number of outputs that it was trained on, and its members."""
        return {"fit_without": self.trained_on[0], "fit_with": self.trained_on[1], "members": list(self.names)}

    @property
    def members(self) -> tuple[Distinguisher, ...]:
        """The network and the single features."""
        return tuple(LearnedMember(whole=self, place=place) for place in range(len(self.names)))

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """All scores of one output, shape (members,)."""
        del key
        features = self.read(output)
        single = features[self.alone] * jnp.asarray(self.signs, jnp.float32)
        return jnp.append(network.apply(self.scaling, self.weights, features), single)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LearnedMember(OneScore):
    """A single score of a learned distinguisher."""

    whole: Learned
    place: int
    curve: TradeOff | None = None

    @property
    def name(self) -> str:
        """Name of the feature, or of the network."""
        return self.whole.names[self.place]

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Parameters of the whole distinguisher."""
        return self.whole.parameters

    @property
    def accepts(self) -> tuple[OutputKind, ...]:
        """Kinds of output that the whole distinguisher can read."""
        return self.whole.accepts

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The score of one output."""
        return self.whole(key, output)[self.place]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """A learner: trains on fit trials that nothing judges."""

    given: Callable[[Any], Any] | None = None
    """The user's features of one output; by default those of ``features.py``."""
    record: np.ndarray | None = None
    """The record's gradient, if known."""
    replayed: np.ndarray | None = None
    """How the record moved the whole release on the same draws, if both sides were run on them."""
    name: str = "fit"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The name of the features."""
        return {} if self.given is None else {"features": name_of(self.given)}

    def fit_trials(self, trials: int) -> int:
        """Number of fit trials in total, half of them per side."""
        return 2 * (int(np.clip(SHARE * trials, LEAST, MOST)) // 2)

    def learn(self, key: jax.Array, without: Any, with_record: Any, layout: Layout) -> Learned:
        """Half of the outputs, chosen by the key, lay out the features; the other half trains the network."""
        sides = _checked(without, with_record)
        key_halves, key_network = jax.random.split(key)
        halves = [_halves(jax.random.fold_in(key_halves, i), side) for i, side in enumerate(sides)]
        if self.given is None:
            view = View(layout=layout)
            without_rows, with_rows = (view.rows(first) for first, _ in halves)
            given = _of_rounds(self.record, layout) | self._seen(layout)
            found = learn_features(without_rows, with_rows, view, given=given)
            read, names, trained = found, found.names, [second for _, second in halves]
        else:
            read, trained = _Given(given=self.given), sides
            size = jax.eval_shape(read, jax.tree.map(lambda leaf: leaf[0], sides[0])).size
            names = tuple(f"feature {i}" for i in range(size))
        both = jax.tree.map(lambda *leaves: np.concatenate(leaves), *trained)
        seen = np.split(_read_all(read, both, layout.entries), [_count(trained[0])])
        scaling, weights = network.train(key_network, *seen)
        always = [f"whitened_{name}" for name in self._seen(layout)]
        always += [RECORD] if self.given is None and layout.rounds else []
        alone, signs = _best_alone(*seen, always=always, names=names)
        return Learned(
            read=read,
            names=("learned", *(f"learned {names[place]}" for place in alone)),
            alone=alone,
            signs=signs,
            scaling=scaling,
            weights=weights,
            trained_on=(_count(sides[0]), _count(sides[1])),
        )

    def _seen(self, layout: Layout) -> dict[str, np.ndarray]:
        """The direction in which a replay saw the release move, if its shape is that of the outputs."""
        fits = self.replayed is not None and len(self.replayed) == layout.entries
        return {REPLAYED: self.replayed} if fits and self.replayed is not None else {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Given:
    """A user's features as one float32 row."""

    given: Callable[[Any], Any]

    def __call__(self, output: Any) -> jax.Array:
        leaves = jax.tree.leaves(self.given(output))
        return jnp.concatenate([jnp.ravel(jnp.asarray(leaf, jnp.float32)) for leaf in leaves])


def fit(features: Callable[[Any], Any] | None = None) -> Fit:
    """A learner: a network trained on fit trials tells the sides apart by ``features(output)``.

    The auditor draws the fit trials under keys of their own and judges none of them: a bound from a learnt score is
    as valid as from any other. [docs/validity.md, section 17] That it learns what leaks is not guaranteed.

    Args:
      features: a function of one output that JAX traces, to an array or a pytree of numbers. Without it the features
        are learnt too: directions in which the means differ, the largest standardised coordinate, variances, norms and
        means of every tensor, order statistics, values that repeat, the grain of the coordinates, agreement of rounds.

    Returns:
      The learner, to be given to ``audit.run_audit`` as its distinguisher.

    Raises:
      TypeError: ``features`` is not a function.

    Examples:
      >>> import distinguishers
      >>> distinguishers.fit().name
      'fit'
    """
    if features is not None and not callable(features):
        raise TypeError(f"fit takes a function of an output, got {features!r}; run_audit draws the outputs itself.")
    return Fit(given=features)


def _count(outputs: Any) -> int:
    """Number of outputs."""
    return len(jax.tree.leaves(outputs)[0])


def _checked(without: Any, with_record: Any) -> list[Any]:
    """Both sides, if there are enough outputs."""
    sides = [without, with_record]
    fewest = min(map(_count, sides))
    require("outputs", fewest >= FEWEST, f"at least {FEWEST} per side", fewest)
    finite = all(bool(np.isfinite(leaf).all()) for side in sides for leaf in jax.tree.leaves(side))
    require("outputs", finite, "finite", "NaN or infinity")
    return [jax.tree.map(np.asarray, side) for side in sides]


def _halves(key: jax.Array, side: Any) -> tuple[Any, Any]:
    """Split outputs into two random halves."""
    count = _count(side)
    # on the host: the device would compile a sort for this one use
    order = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel()).permutation(count)
    first, second = np.sort(order[: count // 2]), np.sort(order[count // 2 :])
    return jax.tree.map(lambda leaf: leaf[first], side), jax.tree.map(lambda leaf: leaf[second], side)


def _of_rounds(record: np.ndarray | None, layout: Layout) -> dict[str, np.ndarray]:
    """The record's gradient in all rounds and in each of the first few, if its shape fits the output.

    It may be one gradient for each round, or the same in all of them.
    """
    rounds = layout.rounds or 1
    if record is None or len(record) not in (layout.size, layout.size * rounds):
        return {}
    each = np.broadcast_to(record.reshape(-1, layout.size), (rounds, layout.size))
    found = {RECORD: each.ravel()}
    for one in range(min(rounds, ROUNDS) if rounds > 1 else 0):
        found[f"{RECORD} in round {one}"] = np.concatenate([np.zeros(one * layout.size), each[one]])
    return found


@jax.jit
def _shared(read: Read, outputs: Any) -> jax.Array:
    """Features of outputs, by one program for all learners whose features have the same structure."""
    return jax.vmap(read)(outputs)


def _read_all(read: Read, side: Any, entries: int) -> np.ndarray:
    """Features of every output, in pieces of one shape."""
    count = _count(side)
    size = int(min(count, max(1, AT_ONCE // max(entries, 1))))
    program = functools.partial(_shared, jax.device_put(read)) if is_structured(read) else jax.jit(jax.vmap(read))
    found = []
    for start in range(0, count, size):
        # the last piece reaches back, so that one shape is compiled
        first = max(0, min(start, count - size))
        piece = np.asarray(program(jax.tree.map(lambda leaf, at=first: leaf[at : at + size], side)))
        found.append(piece[start - first :])
    return np.concatenate(found)


def _best_alone(
    without: np.ndarray, with_record: np.ndarray, *, always: Container[str], names: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Places and signs of the features that distinguish the sides best, and of those that are always kept.

    Ranks show a shift of the whole law. They overlook an event that is rare with the record and never happens without
    it, as in rounds that seldom sample the record: the last place is for that.
    """
    ranks = ranks_of(np.concatenate([without, with_record]))[len(without) :]
    n0, n1 = len(without), len(with_record)
    area = (ranks.sum(axis=0) - n1 * (n1 + 1) / 2) / (n0 * n1) - 0.5
    above, below = (_separation(sign * without, sign * with_record) for sign in (1.0, -1.0))
    tails = np.maximum(above, below)
    kept = [place for place, name in enumerate(names) if name in always]
    order = np.argsort(-np.abs(area), kind="stable")
    # as many in every audit, so that scores of one structure share their program
    best = order[~np.isin(order, kept)][: ALONE - 1]
    order = np.argsort(-tails, kind="stable")
    last = order[~np.isin(order, [*best, *kept])][:1]
    signs = np.where(area >= 0, 1.0, -1.0)
    signs[last] = np.where(above[last] >= below[last], 1.0, -1.0)
    chosen = np.concatenate([best, last, kept]).astype(int)
    return chosen, signs[chosen]


def _separation(without: np.ndarray, with_record: np.ndarray) -> np.ndarray:
    """Distance in deviations of two normal laws whose tails have at least what each feature's tails show."""
    shown = []
    for first, second in ((without, with_record), (-with_record, -without)):
        n0, n1 = len(first), len(second)
        false = np.append(0, 2 ** np.arange(n0.bit_length() - 1))
        thresholds = np.sort(first, axis=0)[::-1][false]
        true = (second[None] > thresholds[:, None]).sum(axis=1)
        high = special.betaincinv(false + 1.0, n0 - false, TAIL)
        low = special.betaincinv(np.maximum(true, 0.5), n1 - true + 1.0, 1 - TAIL)
        shown.append(special.ndtri(low) - special.ndtri(high)[:, None])
    return np.concatenate(shown).max(axis=0)
