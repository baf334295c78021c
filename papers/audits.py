"""python -m papers audits: the kinds of bound that published audits print, beside a valid one on the same scores.

Each protocol is scaled to a logistic regression of 40 made records and 10 weights, which two cores train a thousand
times in a second. Statistic and bound are of the paper's kind, rebuilt here in their simplest form and not run by the
authors' code; data and model are ours. So numbers cannot be compared with the papers' own. What can be compared is what
such a bound says and what the same scores prove.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy.special import expit, ndtri
from scipy.stats import beta

import audit
import guarantees
from audit.bounds.bounds_from_guesses import mu_refuted
from guarantees.numerics.array import Array
from guarantees.numerics.search import halved
from mechanisms.pairs.coordinate_canaries import CoordinateCanaries
from papers import shared_coordinates

RISK, DELTA, MU = 0.05, 1e-5, 2.0
"""mu 2 is epsilon 10 at delta 1e-5."""
RECORDS, WEIGHTS, STEPS, RATE = 40, 10, 20, 0.2
MANY_STEPS, SAMPLED, PLACES = 1000, 0.01, 1000
"""Steps and sampling rate of the training whose every step is seen, and the canaries that replace its one."""
CANARIES = 5000
"""Of the audit in one run."""
CLAIMED = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Epsilons of the trainings in one run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """One published protocol on our scores."""

    paper: str
    protocol: str
    statistic: str
    claimed: float
    theirs: float
    assumes: str
    """What the paper's bound needs to be true."""
    valid: float
    by: str
    """What proves the valid one, and what of."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """Made records; labels are -1 and 1."""

    records: Array
    labels: Array


def made_data(rng: np.random.Generator, weights: int = WEIGHTS) -> Data:
    """Gaussian features of norm about 1, labelled by a hidden direction."""
    records = rng.normal(size=(RECORDS, weights)) / math.sqrt(weights)
    return Data(records=records, labels=np.sign(records @ rng.normal(size=weights)))


def clipped(data: Data, weights: Array) -> Array:
    """What each record's gradient is times its features, clipped to norm 1, at each of the weights."""
    slope = -data.labels * expit(-data.labels * (weights @ data.records.T))
    return slope / np.maximum(1.0, np.abs(slope) * np.linalg.norm(data.records, axis=1))


def every_step(
    rng: np.random.Generator, data: Data, pulls: Iterable[Array], *, rate: float = SAMPLED, noise: float = 1.0
) -> Iterable[Array]:
    """One training with sampled batches: what each step shows, its other records being known.

    ``pulls`` are the sums of the canaries' gradients that join each step.
    """
    weights = np.zeros(data.records.shape[1])
    for pull in pulls:
        joins = rng.random(RECORDS) < rate
        others = (joins * clipped(data, weights)) @ data.records
        noisy = others + pull + noise * rng.normal(size=len(weights))
        weights = weights - RATE * noisy
        yield noisy - others


def train(
    rng: np.random.Generator,
    data: Data,
    *,
    trainings: int,
    start: Array,
    noise: float,
    pull: Array | None = None,
) -> Array:
    """Final weights of so many DP-SGD trainings: full batches, clipping norm 1, every step.

    ``pull`` is a gradient that an adversary inserts at every step.
    """
    weights = np.broadcast_to(start, (trainings, WEIGHTS)).copy()
    for _ in range(STEPS):
        total = clipped(data, weights) @ data.records + (0.0 if pull is None else pull)
        weights -= RATE * (total + noise * rng.normal(size=weights.shape))
    return weights


def upper(errors: Array, trials: int) -> Array:
    """Clopper-Pearson upper limits at half the risk."""
    return np.where(errors >= trials, 1.0, beta.ppf(1 - RISK / 2, errors + 1, np.maximum(trials - errors, 1)))


def rates(without: Array, with_record: Array) -> tuple[Array, Array]:
    """Upper limits of both error rates at every threshold."""
    cuts = np.concatenate([without, with_record])
    alarms = len(without) - np.searchsorted(np.sort(without), cuts)
    misses = np.searchsorted(np.sort(with_record), cuts)
    return upper(alarms, len(without)), upper(misses, len(with_record))


def gaussian_fit(without: Array, with_record: Array) -> float:
    """Largest ``mu = z(1 - alpha) - z(beta)`` over all thresholds of these same scores, each at the full risk."""
    alpha, missed = rates(without, with_record)
    with np.errstate(invalid="ignore"):
        found = np.nan_to_num(ndtri(1 - alpha) - ndtri(missed), nan=0.0, neginf=0.0)
    return max(0.0, float(np.max(found)))


def epsilon_of(mu: float) -> float:
    """Epsilon at the delta of the table."""
    return float(guarantees.gaussian(mu=mu).epsilon(DELTA)) if mu > 0 else 0.0


def proven(without: Array, with_record: Array, delta: float) -> float:
    """What these scores prove, with the choice of the threshold paid for."""
    return audit.from_scores(without, with_record, risk=RISK, delta=delta, target="epsilon").epsilon(delta)


def fitted(zero: Array, one: Array, *, paper: str, protocol: str, statistic: str) -> Judged:
    """A training of mu 2 whose scores are fitted by a Gaussian curve."""
    return Judged(
        paper=paper,
        protocol=protocol,
        statistic=statistic,
        claimed=epsilon_of(MU),
        theirs=epsilon_of(gaussian_fit(zero, one)),
        assumes="scores are mu-GDP for some mu; the threshold was not chosen on them",
        valid=proven(zero, one, DELTA),
        by="from_scores, same scores, nothing assumed",
    )


def annamalai(rng: np.random.Generator, trainings: int) -> Judged:
    """Black box: the loss of the target at the end, from initial weights at which other gradients are small."""
    data, noise = made_data(rng), math.sqrt(STEPS) / MU
    start = 40 * np.linalg.lstsq(data.records, data.labels, rcond=None)[0]
    target = Data(records=-data.records[:1] / np.linalg.norm(data.records[0]), labels=data.labels[:1])
    both = Data(
        records=np.concatenate([data.records, target.records]), labels=np.concatenate([data.labels, target.labels])
    )
    zero, one = (
        (train(rng, own, trainings=trainings, start=start, noise=noise) @ target.records[0]) * target.labels[0]
        for own in (data, both)
    )
    return fitted(
        zero,
        one,
        paper="annamalai2024",
        protocol=f"final model, worst-case initial weights, {trainings} trainings per side",
        statistic="loss of the target",
    )


def cebere(rng: np.random.Generator, trainings: int) -> Judged:
    """Hidden state: a crafted gradient at every step, the final weights along it."""
    data, noise, along = made_data(rng), math.sqrt(STEPS) / MU, np.eye(WEIGHTS)[0]
    zero, one = (
        -train(rng, data, trainings=trainings, start=np.zeros(WEIGHTS), noise=noise, pull=pull) @ along
        for pull in (None, along)
    )
    return fitted(
        zero,
        one,
        paper="cebere2025",
        protocol=f"hidden state, crafted gradients, {trainings} trainings per side",
        statistic="final weights along the crafted gradient",
    )


def jagielski(rng: np.random.Generator, trainings: int) -> Judged:
    """ClipBKD: two copies of a record along the direction in which the data vary least."""
    data, noise, copies = made_data(rng), math.sqrt(STEPS) / MU, 2
    poison = np.repeat(np.linalg.svd(data.records)[2][-1:], copies, axis=0)
    both = Data(records=np.concatenate([data.records, poison]), labels=np.append(data.labels, np.ones(copies)))
    zero, one = (
        train(rng, own, trainings=trainings, start=np.zeros(WEIGHTS), noise=noise) @ poison[0] for own in (data, both)
    )
    half = trainings // 2
    alpha, missed = rates(zero[:half], one[:half])
    best = np.concatenate([zero[:half], one[:half]])[np.argmax(np.log(np.maximum(1 - missed, 1e-9) / alpha))]
    alarms, misses = np.array([np.sum(zero[half:] >= best)]), np.array([np.sum(one[half:] < best)])
    caught = 1 - upper(misses, len(one) - half)
    theirs = float(np.log(np.maximum(caught, 1e-9) / upper(alarms, len(zero) - half))[0]) / copies
    return Judged(
        paper="jagielski2020",
        protocol=f"ClipBKD, {copies} copies, {trainings} trainings per side",
        statistic="score of the poisoned record",
        claimed=epsilon_of(MU),
        theirs=max(0.0, theirs),
        assumes="delta is 0 (the training's is not); half of the trainings choose the threshold",
        valid=proven(zero, one, 0.0) / copies,
        by="from_scores, same scores, delta 0 and group privacy as theirs",
    )


def nasr(rng: np.random.Generator, _trainings: int) -> Judged:
    """One training, every update seen: its steps with a gradient canary against its steps without; no repetitions."""
    data, along = made_data(rng, PLACES), np.eye(1, PLACES)[0]
    seen = np.stack(list(every_step(rng, data, (step % 2 * along for step in range(2 * MANY_STEPS)))))
    seen_mu = gaussian_fit(seen[::2] @ along, seen[1::2] @ along)

    def many_canaries(canaries: CoordinateCanaries) -> Iterable[Array]:
        pulls = (np.bincount(joining, minlength=PLACES).astype(float) for joining in canaries.batches(MANY_STEPS))
        for step in every_step(rng, data, pulls):
            yield canaries.seen(step)

    found = audit.one_training(
        many_canaries,
        weights=PLACES,
        places=PLACES,
        length=1.0,
        rate=SAMPLED,
        noise_multiplier=1.0,
        risk=RISK,
        delta=DELTA,
    )
    return Judged(
        paper="nasr2023",
        protocol=f"gradient canary, all updates of a training of {PLACES:,} weights: {MANY_STEPS:,} steps with it, as "
        f"many without, rate {SAMPLED:g}",
        statistic="update along the canary, step by step",
        claimed=sampled_epsilon(1.0),
        theirs=sampled_epsilon(1 / seen_mu) if seen_mu > 0 else 0.0,
        assumes="steps are independent Gaussians of one mu, batches are Poisson as said (sampling is not audited), the "
        "accountant is right; the threshold was not chosen on these scores",
        valid=found.epsilon(DELTA),
        by=f"one_training, {PLACES:,} sampled canaries in such a training; its one canary alone proves nothing",
    )


def sampled_epsilon(noise_multiplier: float) -> float:
    """Epsilon of the training whose every step is seen."""
    training = guarantees.poisson_training(
        rate=SAMPLED, noise_multiplier=noise_multiplier, steps=MANY_STEPS, accountant="certified"
    )
    return float(training.epsilon(DELTA))


def numbers_of_guesses() -> list[int]:
    """Of which the best is picked, on each side."""
    return np.unique(np.geomspace(3, 0.47 * CANARIES, 40).astype(int)).tolist()


def best_labelled(scores: Array, coins: Array) -> float:
    """Epsilon of the largest refuted mu over all numbers of guesses, each at the full risk."""
    ranked = coins[np.argsort(-scores)]
    right = np.cumsum(ranked) + np.cumsum(~ranked[::-1])
    refuted = (mu_refuted(int(right[k - 1]), 2 * k, coins=CANARIES, risk=RISK) for k in numbers_of_guesses())
    return epsilon_of(max(refuted))


def mahloujifar(rng: np.random.Generator, _trainings: int) -> Judged:
    """One step, gradient canaries in distinct coordinates: the best number of guesses of many, against a curve."""
    coins = rng.random(CANARIES) < 0.5
    scores = MU * coins + rng.normal(size=CANARIES)
    return Judged(
        paper="mahloujifar2024",
        protocol=f"one run, {CANARIES:,} simulated gradient canaries in distinct coordinates, every update seen",
        statistic=f"right guesses, best of {len(numbers_of_guesses())} numbers of guesses",
        claimed=epsilon_of(MU),
        theirs=best_labelled(scores, coins),
        assumes="the training is mu-GDP for some mu; the number of guesses was not chosen on them",
        valid=audit.one_run(scores, coins, risk=RISK, delta=DELTA).epsilon(DELTA),
        by="one_run, same scores, nothing assumed",
    )


def one_training(claimed: float, seed: int) -> tuple[float, float, float]:
    """Of a training of so many weights on made data that keeps an epsilon: bound of the kind, labelled, and agnostic.

    Full batches, every update seen, a canary in each coordinate.
    """
    mu = float(halved(lambda own: epsilon_of(own) >= claimed, 0.01, 5.0, rounds=40)[1])
    rng = np.random.default_rng((seed, len(PROTOCOLS)))
    coins = rng.random(CANARIES) < 0.5
    pulls = (coins.astype(float) for _ in range(STEPS))
    seen = every_step(rng, made_data(rng, CANARIES), pulls, rate=1.0, noise=math.sqrt(STEPS) / mu)
    scores = np.sum(list(seen), axis=0)
    with_claim = audit.one_run(scores, coins, risk=RISK, delta=DELTA, claim=guarantees.gaussian(mu=mu))
    return (
        best_labelled(scores, coins),
        epsilon_of(with_claim.mu or 0.0),
        audit.one_run(scores, coins, risk=RISK, delta=DELTA).epsilon(DELTA),
    )


def claimed_lines(*, seeds: int) -> Iterable[str]:
    """In the place of table 1 of mahloujifar2024: claims from 1 to 16, medians over seeds."""
    yield (
        "| claimed | best number of guesses, mu-GDP assumed (not valid) | number from the claim, mu-GDP assumed | "
        "valid, nothing assumed |"
    )
    yield "|---|---|---|---|"
    for claimed in CLAIMED:
        found = np.median([one_training(claimed, seed) for seed in range(seeds)], axis=0)
        yield f"| {claimed:g} | " + " | ".join(f"{each:.2f}" for each in found) + " |"
    yield (
        f"In the place of table 1 of mahloujifar2024, whose CIFAR-10 was not to be had: a logistic regression of "
        f"{CANARIES:,} weights on {RECORDS} made records, {STEPS} full batches, every update seen, a canary in each "
        f"coordinate, medians of {seeds} trainings. Neither the paper's data nor its code was run."
    )


PROTOCOLS: tuple[Callable[[np.random.Generator, int], Judged], ...] = (
    annamalai,
    cebere,
    jagielski,
    nasr,
    mahloujifar,
)


def judged(*, trainings: int, seed: int) -> list[Judged]:
    """All protocols, each with random numbers of its own."""
    return [protocol(np.random.default_rng((seed, number)), trainings) for number, protocol in enumerate(PROTOCOLS)]


def main(words: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m papers audits", description=__doc__)
    parser.add_argument("--trainings", type=int, default=500, help="per side (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=20, help="seeds of the other tables (default: %(default)s)")
    options = parser.parse_args(words)
    print("| paper | protocol, here | statistic | claimed | bound of its kind | which assumes | valid | by |")
    print("|---|---|---|---|---|---|---|---|")
    for each in judged(trainings=options.trainings, seed=options.seed):
        print(
            f"| {each.paper} | {each.protocol} | {each.statistic} | {each.claimed:.2f} | {each.theirs:.2f} | "
            f"{each.assumes} | {each.valid:.2f} | {each.by} |"
        )
    print(f"Epsilon at delta {DELTA:g} (jagielski2020: at delta 0), risk {RISK:g}, made data, seed {options.seed}.")
    print()
    for table in (shared_coordinates.lines, claimed_lines):
        for line in table(seeds=options.repeat):
            print(line, flush=True)
        print()
    return 0
