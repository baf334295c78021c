"""What privacy promises mean: exact and certified trade-off curves, without simulation and without JAX."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guarantees.claim import Claim as Claim
    from guarantees.trade_off import TradeOff as TradeOff

# Name -> module. Loaded on first use: importing the package costs nothing, and no accountant is needed for
# the curves that do without one.
_HOMES = {
    "Claim": "claim",
    "TradeOff": "trade_off",
    "Certificate": "laws.law",
    "gaussian": "families.textbook",
    "epsilon_delta": "families.textbook",
    "laplace": "families.textbook",
    "randomised_response": "families.textbook",
    "subsampled_gaussian": "families.textbook",
    "renyi": "families.renyi",
    "zcdp": "families.renyi",
    "variance_pair": "normalised.variance_pair",
    "normalised_round": "normalised.round",
    "revealed_round": "normalised.bounds",
    "round_upper_bound": "normalised.bounds",
    "normalised_guarantee": "normalised.bounds",
    "projection_bound": "normalised.bounds",
    "clt_bound": "normalised.bounds",
    "isolated_shuffle": "shuffling.isolated",
    "isolated_bracket": "shuffling.isolated",
    "shuffle_berry_esseen": "shuffling.berry_esseen",
    "rounds_needed": "shuffling.berry_esseen",
    "shuffle_mu": "shuffling.berry_esseen",
    "poisson_mu": "shuffling.berry_esseen",
    "max_coordinate": "shuffling.max_coordinate",
    "fixed_batch_shuffle": "shuffling.fixed_batch",
    "fixed_batch_bracket": "shuffling.fixed_batch",
    "fixed_batch_event": "shuffling.fixed_batch_bounds",
    "deterministic_batches": "shuffling.fixed_batch_bounds",
    "fixed_batch_upper": "shuffling.clones",
    "balls_and_bins": "shuffling.balls_and_bins",
    "coefficient_ratio": "shuffling",
    "coefficient_ratio_midpoint": "shuffling",
    "largest_delta": "shuffling",
    "largest_noise_multiplier": "shuffling",
    "edgeworth_cdf": "shuffling",
    "fixed_point_separation": "shuffling",
    "balls_and_bins_estimate": "shuffling",
    "separation_bound": "shuffling.separation",
    "noise_threshold": "shuffling.separation",
    "epsilon_floor": "shuffling.separation",
    "single_epoch_ceiling": "shuffling.separation",
    "poisson_training": "families.accountants",
    "claim_from_pld": "families.accountants",
    "compose": "trade_off",
    "dominance": "summary",
    "mu_star": "summary",
    "regret": "summary",
    "summarise": "summary",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


class _Package(types.ModuleType):
    """Keeps a public function where importing the submodule of the same name would bind the module over it."""

    def __setattr__(self, name: str, value: Any) -> None:
        taken = name in _HOMES and isinstance(value, types.ModuleType)
        super().__setattr__(name, getattr(value, name) if taken else value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'guarantees' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"guarantees.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
