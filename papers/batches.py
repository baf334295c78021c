"""003: Poisson, shuffled and deterministic batches [chua2024]."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from scipy.optimize import root_scalar

import guarantees
from guarantees.claim import Claim
from papers.item import Aside, Item
from papers.renyi import renyi_accountant

HALF = "the text gives the delta of epsilon .5 as that of epsilon 1: see the asides"
COARSE = "holds; dp-accounting gives {} on a lattice of 1e-3, and ours on its default of 1e-4"
ROUNDED_UP = "printed as at least, rounded up"


@functools.cache
def deterministic(noise: float) -> Claim:
    """Deterministic batches: the Gaussian mechanism."""
    return guarantees.deterministic_batches(noise_multiplier=noise)


@functools.cache
def poisson(noise: float, steps: int) -> Claim:
    """One epoch of Poisson batches."""
    return guarantees.poisson_training(rate=1 / steps, noise_multiplier=noise, steps=steps)


@functools.cache
def shuffled(noise: float, steps: int) -> Claim:
    """The paper's lower bound on shuffled batches, by its events."""
    return guarantees.fixed_batch_event(rounds=steps, noise_multiplier=noise)


def items() -> Iterator[Item]:
    """Every printed number and figure of the paper."""
    yield from _epsilons()
    yield from _deltas()
    yield Item(where="Figure 2", section="4.2", what="deltas that cross", why="it prints no values")


def _epsilons() -> Iterator[Item]:
    first, fourth, fifth = (
        ("Figure 1", "1.1", 10_000, 1e-6),
        ("Figure 4", "A.1", 100_000, 1e-6),
        ("Figure 5", "A.1", 1000, 1e-5),
    )
    for (figure, section, steps, delta), noise, kind, printed in (
        (first, 0.5, "Poisson, PLD", "<1.96"),
        (first, 0.5, "Poisson, RDP", "<3.43"),
        (first, 0.5, "shuffled, lower", ">10.994"),
        (first, 0.5, "deterministic", "≈10.997"),
        (first, 1.3, "Poisson, PLD", "<0.031"),
        (first, 1.3, "shuffled, lower", ">0.26"),
        (fourth, 0.4, "Poisson, PLD", "<3"),
        (fourth, 0.4, "Poisson, RDP", "<4.71"),
        (fourth, 0.4, "shuffled, lower", ">14.45"),
        (fourth, 1.3, "Poisson, PLD", "<0.01"),
        (fourth, 1.3, "shuffled, lower", ">0.029"),
        (fifth, 0.7, "Poisson, PLD", "<0.61"),
        (fifth, 0.7, "Poisson, RDP", "<1.64"),
        (fifth, 0.7, "shuffled, lower", ">6.528"),
        (fifth, 0.7, "deterministic", "≈6.652"),
        (fifth, 1.3, "Poisson, PLD", "<0.092"),
        (fifth, 1.3, "shuffled, lower", ">0.83"),
    ):
        yield Item(
            where=f"{figure}, sigma {noise:g}",
            section=section,
            what=f"epsilon at {delta:g}, {kind}",
            printed=printed,
            ours=functools.partial(_epsilon, kind, noise, steps, delta),
            why="1.653 by dp-accounting's orders; no choice of orders gives less than 1.65"
            if printed == "<1.64"
            else "",
        )


def _deltas() -> Iterator[Item]:
    third, sixth, seventh = (
        ("Figure 3", "4.3", 0.4, 10_000),
        ("Figure 6", "A.2", 0.8, 1000),
        ("Figure 7", "A.2", 1.0, 1000),
    )
    for (figure, section, noise, steps), epsilon, kind, printed, why in (
        (third, 4.0, "Poisson, PLD", "<1.18e-5", COARSE.format("1.171e-5")),
        (third, 4.0, "shuffled, lower", ">0.226", ""),
        (third, 4.0, "deterministic", "≈0.244", ""),
        (third, 12.0, "shuffled, lower", ">7.5e-5", ROUNDED_UP),
        (sixth, 1.0, "Poisson, PLD", "<9.873e-9", COARSE.format("9.8726e-9")),
        (sixth, 1.0, "Poisson, RDP", "<3.346e-5", ""),
        (sixth, 1.0, "shuffled, lower", ">0.018", f"{ROUNDED_UP}; the pair itself reaches it: see the asides"),
        (sixth, 4.0, "shuffled, lower", ">1.6e-4", f"{ROUNDED_UP}; the pair itself reaches it: see the asides"),
        (seventh, 1.0, "Poisson, PLD", "<2.06e-10", f"holds, but {HALF}"),
        (seventh, 1.0, "Poisson, RDP", "<8.45e-5", f"holds, but {HALF}"),
        (seventh, 1.0, "shuffled, lower", ">0.004", HALF),
        (seventh, 4.0, "shuffled, lower", ">4.38e-7", ""),
    ):
        yield Item(
            where=f"{figure}, epsilon {epsilon:g}",
            section=section,
            what=f"delta, {kind}",
            printed=printed,
            ours=functools.partial(_delta_of, kind, noise, steps, epsilon),
            why=why,
        )


def asides() -> Iterator[Aside]:
    """Numbers of our own: what its theorems amount to, and where its misprints come from."""
    for kind in ("Poisson, PLD", "Poisson, RDP", "shuffled, lower"):
        yield Aside(
            where="Figure 7, at epsilon .5",
            what=f"delta, {kind}",
            ours=functools.partial(_delta_of, kind, 1.0, 1000, 0.5),
        )
    for epsilon in (1.0, 4.0):
        yield Aside(
            where=f"Figure 6, epsilon {epsilon:g}",
            what="delta of the pair of section 3 itself, without the events",
            ours=lambda epsilon=epsilon: float(
                guarantees.fixed_batch_shuffle(rounds=1000, noise_multiplier=0.8).delta(epsilon)
            ),
        )
    yield Aside(
        where="Conjecture 3.2, sigma 1, T 2, epsilon 0",
        what="delta of adaptive queries (certified) less that of the pair of section 3 (at most 0 if it were true)",
        ours=lambda: adaptive_gain(noise=1.0, rounds=2),
    )
    yield Aside(
        where="Theorem 4.1, Figure 3, epsilon 4",
        what="delta, shuffled (lower) less deterministic (at most 0)",
        ours=lambda: _delta(shuffled(0.4, 10_000), 4.0) - _delta(deterministic(0.4), 4.0),
    )
    for epsilon, sign in ((0.0, "at most"), (40.0, "at least")):
        yield Aside(
            where="Theorem 4.2, Figure 2",
            what=f"delta at epsilon {epsilon:g}, Poisson less deterministic ({sign} 0)",
            ours=lambda epsilon=epsilon: _delta(poisson(0.3, 10), epsilon) - _delta(deterministic(0.3), epsilon),
        )
    yield Aside(where="Figure 2", what="the epsilon at which the deltas cross", ours=_crossing_point)
    yield Aside(
        where="Proposition C.2, rate .1, sigma 1, T 10",
        what="1 - (1 - TV)^10 less TV of ten rounds (at least 0)",
        ours=_tensor_slack,
    )


def adaptive_gain(*, noise: float, rounds: int) -> float:
    """By how much total variation exceeds what the pair has: the paper uses the pair only as a lower bound."""
    adaptive, pair = (
        make(rounds=rounds, noise_multiplier=noise).total_variation
        for make in (guarantees.adaptive_shuffle, guarantees.fixed_batch_shuffle)
    )
    return adaptive - pair


def _crossing_point() -> float:
    between = (1.0, 40.0)
    return root_scalar(lambda e: _delta(poisson(0.3, 10), e) - _delta(deterministic(0.3), e), bracket=between).root


def _claim(kind: str, noise: float, steps: int) -> Claim:
    if kind == "deterministic":
        return deterministic(noise)
    return poisson(noise, steps) if kind == "Poisson, PLD" else shuffled(noise, steps)


def _epsilon(kind: str, noise: float, steps: int, delta: float) -> float:
    if kind == "Poisson, RDP":
        return float(renyi_accountant(1 / steps, noise, steps).get_epsilon(delta))
    return float(_claim(kind, noise, steps).epsilon(delta))


def _delta_of(kind: str, noise: float, steps: int, epsilon: float) -> float:
    if kind == "Poisson, RDP":
        return float(renyi_accountant(1 / steps, noise, steps).get_delta(epsilon))
    return _delta(_claim(kind, noise, steps), epsilon)


def _delta(claim: Claim, epsilon: float) -> float:
    return float(claim.delta(epsilon))


def _tensor_slack() -> float:
    one = guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=1.0)
    return 1 - (1 - one.total_variation) ** 10 - one.compose(10).total_variation
