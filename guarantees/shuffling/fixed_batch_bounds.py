"""Fixed-size batches: the promise of a deterministic order, and a simple event that leaks under shuffling."""

from __future__ import annotations

from guarantees.checks import AboveZero, Count, checked, require
from guarantees.claim import Claim, grouped
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.shuffling.max_coordinate import LargestCoordinateLaw
from guarantees.trade_off import TradeOff


@checked
def deterministic_batches(*, noise_multiplier: AboveZero, group: Count = 1) -> Claim:
    """One epoch in a fixed order: each record is in one batch, so one Gaussian step. [chua2024, proposition 3.1]

    ``delta(eps) = Phi(1/(2s) - s eps) - e^eps Phi(-1/(2s) - s eps)``. Shuffling never does worse [theorem 4.1].
    If ``group`` records may differ they do most in one batch, where their gradients add: 1/s becomes group/s.

    A guarantee for zero_out neighbours. Under add_remove a missing record would move all later ones to other batches.

    Args:
      noise_multiplier: s, standard deviation of the noise over the clipping norm, above 0.
      group: in how many records neighbours may differ, at least 1.

    Returns:
      The claim for one epoch; ``compose`` gives several.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.deterministic_batches(noise_multiplier=2.0)
      >>> round(claim.mu_star(), 3), claim.unit
      (0.5, 'epoch')
    """
    return Claim(
        curve=TradeOff(GaussianLaw(mu=group / noise_multiplier)),
        name="deterministic_batches",
        parameters={"noise_multiplier": noise_multiplier} | grouped(group),
        relation="zero_out",
        group=group,
        unit="epoch",
        observation="the noisy sums of all batches of one epoch in a fixed order, queries adaptive",
        source="chua2024, proposition 3.1",
    )


@checked
def fixed_batch_event(*, rounds: Count, noise_multiplier: AboveZero, cut_step: float = 0.01) -> Claim:
    """The leak of the event 'some batch sum exceeds C' for shuffled fixed batches. [chua2024]

    ``P_S(max > C) = 1 - Phi((C-2)/s) Phi(C/s)^(T-1)`` with the record, ``Q_S`` with 1 for 2 without it; its delta
    is ``max_C P_S(E_C) - e^eps Q_S(E_C)``. [chua2024, equation 3]

    A leak at least (of the data set with -1 everywhere and the record at 1 or zeroed out), not a guarantee.

    Args:
      rounds: T, batches in one epoch, at least 1.
      noise_multiplier: s, standard deviation of the noise over the clipping norm, above 0.
      cut_step: C runs over the multiples of this number, the paper's .01 by default; 0 allows every C and proves
        slightly more.

    Returns:
      The claim, for one epoch and zero_out neighbours.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> round(guarantees.fixed_batch_event(rounds=10, noise_multiplier=1.0).delta(1.0), 4)
      0.0757
    """
    require("cut_step", cut_step >= 0, ">= 0", cut_step)
    law = LargestCoordinateLaw(
        rounds=rounds,
        with_shift=2 / noise_multiplier,
        without_shift=1 / noise_multiplier,
        cut_step=cut_step / noise_multiplier,
    )
    return Claim(
        curve=TradeOff(law),
        name="fixed_batch_event",
        parameters={"rounds": rounds, "noise_multiplier": noise_multiplier, "cut_step": cut_step},
        relation="zero_out",
        unit="epoch",
        steps=int(rounds),
        observation="the largest batch sum of one shuffled epoch, all other records opposite: a leak at least",
        source="chua2024, equation 3",
    )
