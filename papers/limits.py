"""004: limits on privacy and utility, the max-coordinate test and separation [ertan2026]."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import guarantees
from papers.item import Aside, Item

TABLE_10 = {
    1_000: ("0.316", "0.96", "0.200", "0.58"),
    3_000: ("0.318", "0.97", "0.201", "0.59"),
    10_000: ("0.321", "0.98", "0.203", "0.59"),
    30_000: ("0.322", "0.98", "0.204", "0.59"),
    100_000: ("0.324", "0.99", "0.205", "0.60"),
    300_000: ("0.325", "1.00", "0.206", "0.60"),
    1_000_000: ("0.327", "1.00", "0.207", "0.60"),
    3_000_000: ("0.328", "1.00", "0.207", "0.60"),
    5_000_000: ("0.328", "1.01", "0.207", "0.60"),
}
"""Rounds: separation and least epsilon, shuffled, then Poisson."""
THRESHOLDS = {5_000: "≈0.24", 23_000_000: "≈0.17"}
"""Rounds of an epoch over ImageNet and over LAION-5B."""
CIFAR = {128: "0.29", 256: "0.31", 512: "0.33", 1024: "0.36", 2048: "0.40", 4096: "0.45"}
NEWS = {128: "0.27", 256: "0.29", 512: "0.30", 1024: "0.32"}
SVHN = {128: "0.24", 256: "0.25", 512: "0.27"}
TRAININGS = {
    1: (50_000, CIFAR),
    2: (120_000, {size: NEWS[size] for size in (128, 256, 512)}),
    **dict.fromkeys((3, 4), (120_000, NEWS)),
    **dict.fromkeys((5, 6, 7, 8), (50_000, {size: CIFAR[size] for size in (128, 256, 512, 1024)})),
    9: (604_388, SVHN),
}
"""Table: records, and by batch size the noise multiplier in parentheses."""
SECTIONS = {1: "7", 2: "7"}
"""Of the tables of trainings; the others are in the appendix."""
NOT_TRAINED = "a training study; trainings of our own on shuffled and Poisson batches: docs/trainings.md"
DELTA = 1e-8


def items() -> Iterator[Item]:
    """Every table, printed number and figure of the paper."""
    for rounds, printed in TABLE_10.items():
        for sampler, (kappa, epsilon) in zip(("shuffle", "poisson"), (printed[:2], printed[2:]), strict=True):
            separation = functools.partial(guarantees.separation_bound, rounds=rounds, sampler=sampler)
            where = f"Table 10, M {rounds:,}, {sampler}"
            yield Item(where=where, section="E", what="separation", printed=kappa, ours=separation)
            yield Item(
                where=where,
                section="E",
                what="least epsilon",
                printed=epsilon,
                ours=lambda separation=separation: guarantees.epsilon_floor(separation=separation(), delta=DELTA),
            )
    for rounds, printed in THRESHOLDS.items():
        yield Item(
            where=f"After the proof of theorem 6.1, M {rounds:,}",
            section="6.2",
            what="noise threshold 1/sqrt(2 ln M)",
            printed=printed,
            ours=functools.partial(guarantees.noise_threshold, rounds=rounds),
        )
    for table, (records, noises) in TRAININGS.items():
        section = SECTIONS.get(table, "C")
        yield Item(where=f"Table {table}", section=section, what="accuracies of trainings", why=NOT_TRAINED)
        for size, printed in noises.items():
            yield Item(
                where=f"Table {table}, batches of {size}",
                section=section,
                what="noise multiplier at the threshold",
                printed=printed,
                ours=functools.partial(guarantees.noise_threshold, rounds=records // size),
            )
    for figure, section in (("1", "1"), ("2", "5.4")):
        yield Item(where=f"Figure {figure}", section=section, what="an illustration", why="it prints no values")
    for figure in ("3", "4"):
        yield Item(where=f"Figure {figure}", section="F.1", what="predicted separations", why="it prints no values")


def asides() -> Iterator[Aside]:
    """Numbers of our own: what its theorems and figures amount to."""
    for rounds in (100, 1_000, 10_000):
        noise = guarantees.noise_threshold(rounds=rounds)
        least = guarantees.separation_bound(rounds=rounds)
        yield Aside(
            where=f"Theorem 6.1, M {rounds:,}",
            what="exact separation at the threshold less the bound (at least 0)",
            ours=lambda rounds=rounds, noise=noise, least=least: (
                guarantees.isolated_shuffle(rounds=rounds, noise_multiplier=noise).separation - least
            ),
            slow=rounds > 100,
        )
        yield Aside(
            where=f"Equation 17, M {rounds:,}",
            what="separation of the max-coordinate test less the exact one (at most 0)",
            ours=lambda rounds=rounds, noise=noise: (
                guarantees.max_coordinate(rounds=rounds, noise_multiplier=noise).separation
                - guarantees.isolated_shuffle(rounds=rounds, noise_multiplier=noise).separation
            ),
            slow=rounds > 100,
        )
    yield Aside(
        where="Appendix F.1",
        what="largest separation of one Poisson epoch as M grows (its prediction tends to .707)",
        ours=lambda: guarantees.shuffling.single_epoch_ceiling(rounds=1e6, sampler="poisson"),
    )
    yield Aside(
        where="Figure 3, equation 52, s 1, M 10,000",
        what="the explicit lower bound on the predicted separation",
        ours=functools.partial(explicit_bound, 10_000, 1.0),
    )
    for epochs in (1, 4):
        yield Aside(
            where=f"Figure 4, {epochs} epochs, M 10,000",
            what="separation that the limit predicts at the threshold",
            ours=functools.partial(predicted, 10_000, epochs),
        )


def explicit_bound(rounds: int, s: float) -> float:
    """Equation 52."""
    power = 1 / s**2 - 1
    below = rounds ** (power / 2) / math.sqrt(2)
    return 1 / math.sqrt(2) - 2 / math.sqrt(math.pi) * math.exp(-(rounds**power) / 16) / below


def predicted(rounds: int, epochs: int) -> float:
    """Separation of the Gaussian limit under Poisson sampling at sigma = 1/sqrt(2 ln M)."""
    noise = guarantees.noise_threshold(rounds=rounds)
    mu = guarantees.shuffling.poisson_mu(rounds=rounds, noise_multiplier=noise, epochs=epochs, symmetrised=True)
    return guarantees.gaussian(mu=mu).separation
