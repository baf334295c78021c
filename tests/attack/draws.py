"""Parameters of every public constructor, drawn over wide ranges: extremes beyond them are for `large.py` and tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import guarantees
from guarantees.vocabulary import NORMALISERS, PAIR_RELATIONS

Draw = Callable[[float], Any]
"""A uniform number in [0, 1] to a parameter."""


def spread(low: float, high: float) -> Draw:
    """Evenly in the logarithm."""
    return lambda u: float(low * (high / low) ** u)


def whole(low: int, high: int) -> Draw:
    """Integers, evenly in the logarithm."""
    return lambda u: round(low * (high / low) ** u)


def even(low: float, high: float) -> Draw:
    """Evenly."""
    return lambda u: float(low + (high - low) * u)


def one_of(*values: Any) -> Draw:
    """Each with the same chance."""
    return lambda u: values[min(int(u * len(values)), len(values) - 1)]


def sampling(u: float) -> float:
    """Rates: small ones, middling ones, ones near 1, and 1 itself."""
    if u > 0.95:
        return 1.0
    part, rest = divmod(u / 0.95 * 3, 1.0)
    return [1e-6 * 1e5**rest, 0.1 + 0.8 * rest, 1 - 0.1 * 1e-5**rest][min(int(part), 2)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Space:
    """One constructor and how its parameters are drawn."""

    name: str
    parameters: dict[str, Draw]
    side: str = "exact"
    """exact; safe: a promise, on or below the truth; leaked: what surely leaks, on or above it."""
    slow: bool = False
    """Left to the long run."""

    def draw(self, uniform: Sequence[float]) -> dict[str, Any]:
        """Keyword arguments from one uniform number per parameter."""
        return {key: draw(float(u)) for (key, draw), u in zip(self.parameters.items(), uniform, strict=True)}

    def make(self, given: dict[str, Any]) -> guarantees.Claim:
        """The claim, composed where ``times`` is given."""
        once = {key: value for key, value in given.items() if key != "times"}
        claim = getattr(guarantees, self.name)(**once)
        return claim.compose(given["times"]) if "times" in given else claim


NOISE = spread(0.05, 1000.0)
RELATION = one_of(*PAIR_RELATIONS)
ROUND = {
    "normalise_by": one_of(*NORMALISERS),
    "records": whole(1, 100_000),
    "rate": sampling,
    "noise_multiplier": NOISE,
    "dimension": whole(1, 1_000_000),
}
ALIGNED = ROUND | {"shared": even(-1.0, 1.0), "extra": even(-1.0, 1.0)}
EPOCH = {"rounds": whole(1, 100_000), "noise_multiplier": spread(0.1, 300.0)}
SPACES = [
    Space(name="gaussian", parameters={"mu": spread(1e-6, 1e3)}),
    Space(
        name="subsampled_gaussian",
        parameters={"rate": sampling, "noise_multiplier": NOISE, "relation": RELATION},
    ),
    Space(name="epsilon_delta", parameters={"epsilon": spread(1e-6, 700.0), "delta": even(0.0, 0.999)}),
    Space(name="laplace", parameters={"epsilon": spread(1e-6, 700.0)}),
    Space(name="randomised_response", parameters={"epsilon": spread(1e-6, 700.0)}),
    Space(
        name="zcdp",
        parameters={"rho": spread(1e-8, 1e3)},
        side="safe",
        slow=True,
    ),
    Space(
        name="renyi",
        parameters={
            "orders": lambda u: (1 + 10 ** (4 * u - 2),),
            "epsilons": lambda u: (10 ** (6 * u - 4),),
        },
        side="safe",
    ),
    Space(
        name="variance_pair",
        parameters={"dimension": whole(1, 10**7), "scale": spread(0.1, 10.0), "shift": spread(1e-4, 100.0)},
    ),
    Space(name="normalised_round", parameters=ALIGNED, slow=True),
    Space(name="revealed_round", parameters=ALIGNED, slow=True),
    Space(name="round_upper_bound", parameters=ALIGNED),
    Space(name="normalised_guarantee", parameters=ROUND, side="safe", slow=True),
    Space(name="isolated_shuffle", parameters=EPOCH | {"epochs": whole(1, 100)}, slow=True),
    Space(name="balls_and_bins", parameters=EPOCH | {"epochs": whole(1, 100)}, slow=True),
    Space(name="max_coordinate", parameters={"rounds": whole(1, 10**6), "noise_multiplier": NOISE}, side="leaked"),
    Space(
        name="fixed_batch_shuffle",
        parameters={"rounds": whole(1, 10_000), "noise_multiplier": spread(0.2, 100.0)},
        side="leaked",
        slow=True,
    ),
    Space(
        name="fixed_batch_event",
        parameters={"rounds": whole(1, 100_000), "noise_multiplier": NOISE, "cut_step": one_of(0.0, 0.01)},
        side="leaked",
    ),
    Space(
        name="adaptive_shuffle",
        parameters={"rounds": whole(1, 1000), "noise_multiplier": spread(0.3, 30.0)},
        side="leaked",
        slow=True,
    ),
    Space(name="fixed_batch_upper", parameters=EPOCH, side="safe", slow=True),
    Space(name="deterministic_batches", parameters={"noise_multiplier": NOISE}),
    Space(
        name="poisson_training",
        parameters={
            "rate": sampling,
            "noise_multiplier": spread(0.3, 100.0),
            "steps": whole(1, 100_000),
            "relation": RELATION,
            "accountant": one_of("certified"),
        },
        side="safe",
        slow=True,
    ),
]
UNCOMPOSED = {"renyi", "poisson_training"}
"""They say how often by themselves, or compose by other rules."""
COMPOSED = [
    dataclasses.replace(space, parameters=space.parameters | {"times": whole(2, 300)}, slow=True)
    for space in SPACES
    if space.name not in UNCOMPOSED
]
"""Every constructor composed with itself."""


def name_of(space: Space) -> str:
    """For test ids."""
    return space.name
