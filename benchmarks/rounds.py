"""Audits of whole trainings, as tables: how batches are formed, and what many normalised rounds give away.

    python benchmarks/rounds.py [speed poisson few separation buffer bins normalised] [--trials 2000000]

speed: shuffled batches, time and memory. poisson: shuffled, in order and Poisson batches against the Poisson claim
[chua2024]. few: trials until it is refuted. separation: one epoch at the noise of [ertan2026, theorem 6.1], and both
tests beside their exact curves. buffer: a shuffle buffer. bins: balls and bins. normalised: T rounds with each divisor
[wang2026]. Trials are outputs in total; --rounds says how many rounds poisson, few and bins have.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

import jax
import numpy as np
from scipy import stats

import audit
import distinguishers
import guarantees
import mechanisms
from mechanisms import sampling

RISK, DELTA = 0.05, 1e-5
Cases = list[tuple[float, int]]
"""Noise multipliers and rounds."""


def training(sampler, noise: float, sees: str = "updates"):
    return mechanisms.many_rounds(sampler=sampler, clip=1.0, noise_multiplier=noise, sees=sees).collapsed()


def pair_of(rounds: int):
    return mechanisms.worst_case_pair(records=rounds - 1, dimension=1, clip=1.0, relation="zero_out")


def poisson_claim(rounds: int, noise: float):
    return guarantees.poisson_training(
        rate=1 / rounds, noise_multiplier=noise, steps=rounds, relation="zero_out", accountant="certified"
    )


def run(step, pair, test, claim, trials, seed, *, risk=RISK, **settings):
    return audit.run_audit(
        step, pair, test, claim=claim, trials=trials, risk=risk, key=jax.random.key(seed), diagnose=False, **settings
    )


def poisson(trials: int, seed: int, cases: Cases) -> Iterator[str]:
    yield "| sigma | T | batches | test | epsilon(1e-5) >= | ceiling | claimed | delta(0) >= | claimed | verdict | s |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    ceiling = audit.bounds.joint_epsilon_bound(
        audit.ErrorCounts(false_alarms=0, trials_without=trials // 2, misses=0, trials_with=trials // 2),
        delta=DELTA,
        risk=RISK,
    )
    for noise, rounds in cases:
        pair, claim = pair_of(rounds), poisson_claim(rounds, noise)
        ordered = guarantees.deterministic_batches(noise_multiplier=noise)
        for name, sampler, promise, sees, tests in (
            ("shuffled", sampling.shuffle(batch_size=1), claim, "updates", ("likelihood_ratio", "largest_round")),
            ("in order", sampling.deterministic(batch_size=1), ordered, "updates", ("likelihood_ratio",)),
            ("Poisson", sampling.poisson(rate=1 / rounds, steps=rounds), claim, "isolated", ("likelihood_ratio",)),
        ):
            step = training(sampler, noise, sees)
            for test in tests:
                start = time.monotonic()
                scored = getattr(distinguishers, test)(step, pair)
                record = run(step, pair, scored, promise, trials, seed)
                aimed = run(step, pair, scored, promise, trials, seed + 1, target="epsilon")
                yield (
                    f"| {noise} | {rounds} | {name} | {test} | {aimed.epsilon(delta=DELTA):.2f} | {ceiling:.2f} | "
                    f"{promise.epsilon(DELTA):.2f} | {record.delta(epsilon=0.0):.4f} | {promise.total_variation:.4f} | "
                    f"{record.verdict} | {time.monotonic() - start:.0f} |"
                )


def few(trials: int, seed: int, cases: Cases) -> Iterator[str]:
    yield "| sigma | T | test | trials in all until refuted, 5 seeds |"
    yield "|---|---|---|---|"
    for noise, rounds in cases:
        pair, claim = pair_of(rounds), poisson_claim(rounds, noise)
        step = training(sampling.shuffle(batch_size=1), noise)
        for test in ("likelihood_ratio", "largest_round"):
            scored = getattr(distinguishers, test)(step, pair)
            stopped = [
                run(step, pair, scored, claim, min(trials, 20_000), seed + i, policy=audit.Anytime()).trials
                for i in range(5)
            ]
            yield f"| {noise} | {rounds} | {test} | {', '.join(map(str, sorted(stopped)))} |"


def separation(trials: int, seed: int, cases: Cases) -> Iterator[str]:
    yield "| M | sigma | test | separation >= | theorem 6.1 | exact | largest gap from the exact curve | in band |"
    yield "|---|---|---|---|---|---|---|---|"
    for rounds in (*sorted({rounds for _, rounds in cases}), 10_000):
        noise = guarantees.noise_threshold(rounds=rounds)
        step, pair = training(sampling.shuffle(batch_size=1), noise, "isolated"), pair_of(rounds)
        claim = poisson_claim(rounds, noise)
        for test in ("likelihood_ratio", "largest_round"):
            scored = getattr(distinguishers, test)(step, pair)
            record = run(step, pair, scored, claim, min(trials, 2 * 10**8 // rounds), seed, target="delta")
            distance, inside = beside_curve(record, scored.curve)
            yield (
                f"| {rounds} | {noise:.4f} | {test} | {record.delta(epsilon=0.0) / np.sqrt(2):.4f} | "
                f"{guarantees.separation_bound(rounds=rounds):.4f} | {scored.curve.separation:.4f} | "
                f"{distance:.5f} | {'yes' if inside else 'no'} |"
            )


def beside_curve(record, curve) -> tuple[float, bool]:
    """Largest gap of the observed rates from the exact ones, and whether all lie in a band at risk .05."""
    grid = record.grids[0]
    edges = np.asarray(grid.edges)
    alpha, beta = curve.errors(edges)
    distance, inside = 0.0, True
    for counts, exact in ((grid.without[::-1], alpha[::-1]), (grid.with_record, beta)):
        total, seen = sum(counts), np.cumsum(counts)[:-1]
        share = RISK / (4 * len(edges))
        lower = stats.beta.ppf(share, seen, total - seen + 1)
        upper = stats.beta.ppf(1 - share, seen + 1, total - seen)
        lower, upper = np.nan_to_num(lower, nan=0.0), np.nan_to_num(upper, nan=1.0)
        distance = max(distance, float(np.abs(seen / total - exact).max()))
        inside &= bool(np.all((exact >= lower - curve.error) & (exact <= upper + curve.error)))
    return distance, inside


def buffer(trials: int, seed: int, cases: Cases) -> Iterator[str]:
    yield "| sigma | buffer | record stands | delta(0) >= | epsilon(1e-5) >= | verdict on the Poisson claim |"
    yield "|---|---|---|---|---|---|"
    rounds = cases[0][1]
    pair = pair_of(rounds)
    for noise in (0.5, 1.0):
        claim = poisson_claim(rounds, noise)
        for name, position, size in (
            *((place, at, size) for size in (1, 10, rounds) for place, at in (("first", 0), ("last", rounds - 1))),
            ("anywhere", None, None),
        ):
            sampler = (
                sampling.shuffle(batch_size=1)
                if size is None
                else sampling.shuffle_buffer(batch_size=1, buffer=size, position=position)
            )
            step = training(sampler, noise)
            record = run(step, pair, distinguishers.likelihood_ratio(step, pair), claim, trials, seed)
            said = "whole permutation" if size is None else str(size)
            yield (
                f"| {noise} | {said} | {name} | {record.delta(epsilon=0.0):.4f} | {record.epsilon(delta=DELTA):.2f} | "
                f"{record.verdict} |"
            )


def bins(trials: int, seed: int, cases: Cases) -> Iterator[str]:
    yield "| sigma | T | delta(0) >= | exact | Poisson | verdict | epsilon(1e-5) >= | exact | Poisson |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for noise, rounds in cases:
        pair, claim = pair_of(rounds), poisson_claim(rounds, noise)
        step = training(sampling.balls_and_bins(steps=rounds), noise, "isolated")
        ratio = distinguishers.likelihood_ratio(step, pair)
        record = run(step, pair, ratio, claim, trials, seed)
        yield (
            f"| {noise} | {rounds} | {record.delta(epsilon=0.0):.4f} | {ratio.curve.total_variation:.4f} | "
            f"{claim.total_variation:.4f} | {record.verdict} | {record.epsilon(delta=DELTA):.2f} | "
            f"{ratio.curve.epsilon(DELTA):.2f} | {claim.epsilon(DELTA):.2f} |"
        )


def normalised(trials: int, seed: int, _: Cases) -> Iterator[str]:
    yield "| divisor | T | delta(0) >= | exact | Poisson claim | epsilon(1e-5) >= | exact | verdict | s |"
    yield "|---|---|---|---|---|---|---|---|---|"
    # 140,199 records at rate .005: floor(N q) steps from 700 to 701 with the record
    setting = {"rate": 0.005, "noise_multiplier": 10.0}
    pair = mechanisms.worst_case_pair(records=140_199, dimension=26_010, clip=0.1)
    for divisor in ("floored_expected_batch", "expected_batch", "realised_batch"):
        step = mechanisms.one_round(normalise_by=divisor, clip=0.1, **setting).collapsed()
        for rounds in (10, 200):
            start = time.monotonic()
            many = mechanisms.repeated(step=step, times=rounds)
            ratio = distinguishers.likelihood_ratio(many, pair)
            claim = guarantees.poisson_training(steps=rounds, accountant="certified", **setting)
            record = run(many, pair, ratio, claim, trials, seed)
            yield (
                f"| {divisor} | {rounds} | {record.delta(epsilon=0.0):.5f} | {ratio.curve.total_variation:.5f} | "
                f"{claim.total_variation:.5f} | {record.epsilon(delta=DELTA):.3f} | {ratio.curve.epsilon(DELTA):.3f} | "
                f"{record.verdict} | {time.monotonic() - start:.0f} |"
            )


def speed(trials: int, seed: int, _: Cases) -> Iterator[str]:
    yield "| T | trials | first audit, s | second, s | G rounds/s | peak MiB so far |"
    yield "|---|---|---|---|---|---|"
    for rounds, share in ((100, 10), (100, 1), (1000, 10), (1000, 1)):
        pair, claim = pair_of(rounds), poisson_claim(rounds, 0.5)
        step = training(sampling.shuffle(batch_size=1), 0.5)
        ratio = distinguishers.likelihood_ratio(step, pair)
        spent = []
        for own in (seed, seed + 1):
            start = time.monotonic()
            run(step, pair, ratio, claim, trials // share, own)
            spent.append(time.monotonic() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield (
            f"| {rounds} | {trials // share:,} | {spent[0]:.1f} | {spent[1]:.1f} | "
            f"{trials // share * rounds / spent[1] / 1e9:.3f} | {peak:,.0f} |"
        )


TABLES = {
    "speed": speed,
    "poisson": poisson,
    "few": few,
    "separation": separation,
    "buffer": buffer,
    "bins": bins,
    "normalised": normalised,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(TABLES), help=f"any of {', '.join(TABLES)}")
    parser.add_argument("--trials", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, nargs="+", default=[100, 1000], help="of poisson, few and bins")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cases = [(noise, rounds) for rounds in options.rounds for noise in (0.4, 0.5)]
    for name in options.tables:
        print(f"\n{name}, {options.trials:,} trials in all", flush=True)
        for line in TABLES[name](options.trials, options.seed, cases):
            print(line, flush=True)


if __name__ == "__main__":
    main()
