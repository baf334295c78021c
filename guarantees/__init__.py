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
    "Certificate": "loss_law",
    "gaussian": "families",
    "epsilon_delta": "families",
    "laplace": "families",
    "randomised_response": "families",
    "subsampled_gaussian": "families",
    "renyi": "renyi_curves",
    "zcdp": "renyi_curves",
    "variance_pair": "variance_pair",
    "normalised_round": "normalised",
    "revealed_round": "normalised_bounds",
    "round_upper_bound": "normalised_bounds",
    "normalised_guarantee": "normalised_bounds",
    "projection_bound": "normalised_bounds",
    "clt_bound": "normalised_bounds",
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
    "separation_bound": "separation",
    "noise_threshold": "separation",
    "epsilon_floor": "separation",
    "single_epoch_ceiling": "separation",
    "poisson_training": "accountants",
    "compose": "composition",
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
