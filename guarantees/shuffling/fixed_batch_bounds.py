"""Fixed-size batches: what deterministic order promises and what one simple event betrays under shuffling."""

from __future__ import annotations

from guarantees.checks import AboveZero, Count, checked, require
from guarantees.claim import Claim, grouped
from guarantees.laws.textbook import GaussianLaw
from guarantees.shuffling.max_coordinate import LargestCoordinateLaw
from guarantees.trade_off import TradeOff


@checked
def deterministic_batches(*, noise_multiplier: AboveZero, group: Count = 1) -> Claim:
    """One epoch in a fixed order: each record meets one batch, hence one Gaussian step. [chua2024, proposition 3.1]

    ``delta(eps) = Phi(1/(2s) - s eps) - e^eps Phi(-1/(2s) - s eps)``. Shuffling never does worse [theorem 4.1].
    If ``group`` records may differ they do most in one batch, where their gradients add: 1/s becomes group/s.
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
    """What 'some batch sum exceeds C' gives away of shuffled fixed batches. [chua2024]

    ``P_S(max > C) = 1 - Phi((C-2)/s) Phi(C/s)^(T-1)`` with the record, ``Q_S`` with 1 for 2 without it; its delta
    is ``max_C P_S(E_C) - e^eps Q_S(E_C)``. [chua2024, equation 3]

    C runs over the multiples of ``cut_step``, the paper's .01 by default; 0 allows every C and proves slightly more.
    A leak at least (of the data set with -1 everywhere and the record at 1 or zeroed out), not a guarantee.
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
