"""000: dividing the noisy sum, EASGM, ASGM and FEASGM [wang2026].

It prints no results as numbers: its figures are drawn and its text compares in words. So nearly all here are asides.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Literal

import guarantees
from guarantees.claim import Claim
from papers.item import Aside, Item

Kind = Literal["expected_batch", "realised_batch", "floored_expected_batch"]
CLIP, NOISE, TRIALS = 0.1, 10.0, 10_000
SMALL = (2, 3, 4, 5)
EXPECTED_RATES = (0.005, 0.1, 0.5, 0.6, 0.9, 1.0)
REALISED_RATES = (0.5, 0.6, 0.7, 0.8, 0.9)
RISK = 0.05 / (len(SMALL) * (len(EXPECTED_RATES) + len(REALISED_RATES)))
"""The audits of Figure 2 share the 5% that the paper gives to each: together they hold."""
DIMENSIONS = (10, 100, 1000)
PARAMETERS = (26_010, 1_485_217)
SIZES = (1, 4, 999, 59_999)
LABEL = {"expected_batch": "EASGM", "realised_batch": "ASGM", "floored_expected_batch": "FEASGM"}


NO_VALUES = "it prints no values"


def items() -> Iterator[Item]:
    """Every table, printed number and figure of the paper."""
    yield Item(where="Figure 1", section="1", what="the game and the mechanisms, an illustration", why=NO_VALUES)
    yield Item(where="Table 1", section="3", what="notation", why=NO_VALUES)
    yield Item(where="Figure 2", section="5.1", what="audited deltas at epsilon 0", why=NO_VALUES)
    yield Item(where="Figure 3", section="5.2", what="audited curves by dimension", why=NO_VALUES)
    yield Item(
        where="Figure 4",
        section="5.3",
        what="four systems on images",
        why="it prints no values; our audits of them: dpsgd-audit run suites/systems.toml, docs/systems.md",
    )
    yield Item(where="Figure 5", section="5.4", what="upper bounds for large datasets", why=NO_VALUES)
    yield Item(where="Figure 6", section="A.3", what="audits of FEASGM", why=NO_VALUES)
    yield Item(where="Figure 7", section="A.4", what="FEASGM over 200 rounds", why=NO_VALUES)
    yield Item(
        where="Table 2",
        section="A",
        what="the divisors of Opacus's releases",
        why="in words; our audits of them: dpsgd-audit run suites/opacus-versions.toml, docs/opacus-versions.md",
    )
    for what, printed in (("what the accountant promises", "≈1.2"), ("audited leakage", "≈2.5")):
        yield Item(
            where="Opacus on small datasets, by Cebere et al.",
            section="5.5",
            what=what,
            printed=printed,
            why="cited from a study by others; its settings are not printed",
        )
    yield Item(
        where="Theorem 3.9, the limit of f-bar as n grows",
        section="3.4.1",
        what="miss rate at false-alarm rate .1 that EASGM allows at N 4, n 100,000",
        printed="0",
        tolerance=1e-6,
        ours=lambda: float(upper("expected_batch", 4, 0.05, 100_000).beta(0.1)),
    )


def asides() -> Iterator[Aside]:
    """Numbers of our own behind its figures, from audits of 10,000 trials and from exact curves."""
    for kind, rates in (("expected_batch", EXPECTED_RATES), ("realised_batch", REALISED_RATES)):
        for rate in rates:
            for records in SMALL:
                yield Aside(
                    where=f"Figure 2, {LABEL[kind]}, N {records}, q {rate:g}",
                    what="proven delta at 0, n 100",
                    ours=functools.partial(proven, kind, records, rate, 100),
                    slow=True,
                )
    yield from _third_figure()
    yield from _fifth_figure()
    for dimension in (1000, PARAMETERS[1]):
        yield Aside(
            where=f"Figure 6, n {dimension:,}",
            what="FEASGM, N 3, q .5: proven delta at 0 less the claim's",
            ours=functools.partial(_excess, "floored_expected_batch", 3, 0.5, dimension),
        )
    for parameters in PARAMETERS:
        yield Aside(
            where=f"Figure 7, 200 rounds, n {parameters:,}",
            what="delta at 0 that surely leaks less what the claim of 200 rounds allows",
            ours=functools.partial(_many_rounds, parameters),
        )
    yield Aside(
        where="Theorem 3.10, N 4, q .7",
        what="total variation of ASGM itself as n grows (n 10,000,000)",
        ours=lambda: exact("realised_batch", 4, 0.7, 10**7).total_variation,
        slow=True,
    )
    yield Aside(
        where="Theorem 3.6, opposite gradients, N 3, n 6, sigma 1, q .1",
        what="TV of zero gradients less that of opposite ones, with the batch hidden",
        ours=_zero_less_opposite,
    )


@functools.cache
def proven(kind: Kind, records: int, rate: float, dimension: int) -> float:
    """Proven delta at epsilon 0 of one audit by the likelihood ratio, the whole risk on it."""
    import distinguishers
    import mechanisms
    from audit.procedure import run_audit
    from audit.trials.keys import key_from_seed
    from mechanisms.simulators.one_round import collapsed_round

    pair = mechanisms.worst_case_pair(records=records, dimension=dimension, clip=CLIP)
    step = collapsed_round(normalise_by=kind, rate=rate, clip=CLIP, noise_multiplier=NOISE)
    record = run_audit(
        step,
        pair,
        distinguishers.likelihood_ratio(step, pair),
        claim=claimed(rate),
        trials=TRIALS,
        risk=RISK,
        key=key_from_seed(0),
        target="delta",
        diagnose=False,
    )
    return record.delta(0.0)


@functools.cache
def claimed(rate: float) -> Claim:
    """What accountants assume."""
    return guarantees.subsampled_gaussian(rate=rate, noise_multiplier=NOISE)


@functools.cache
def exact(kind: Kind, records: int, rate: float, dimension: int) -> Claim:
    """The round itself on opposite gradients."""
    return guarantees.normalised_round(
        normalise_by=kind, records=records, rate=rate, noise_multiplier=NOISE, dimension=dimension
    )


def _excess(kind: Kind, records: int, rate: float, dimension: int) -> float:
    return proven(kind, records, rate, dimension) - claimed(rate).total_variation


def _third_figure() -> Iterator[Aside]:
    settings: tuple[tuple[Kind, float], ...] = (("expected_batch", 0.05), ("realised_batch", 0.7))
    for kind, rate in settings:
        yield Aside(
            where=f"Figure 3, {LABEL[kind]}, n {DIMENSIONS[0]}",
            what="exact delta at 0 less the claim's",
            ours=lambda kind=kind, rate=rate: (
                exact(kind, 4, rate, DIMENSIONS[0]).total_variation - claimed(rate).total_variation
            ),
        )
        for dimension in DIMENSIONS[1:]:
            yield Aside(
                where=f"Figure 3, {LABEL[kind]}, n {dimension:,}",
                what="proven delta at 0 less the claim's",
                ours=functools.partial(_excess, kind, 4, rate, dimension),
            )


def _fifth_figure() -> Iterator[Aside]:
    for parameters in PARAMETERS:
        for size in SIZES:
            where = f"Figure 5, EASGM, N {size:,}, n {parameters:,}"
            yield Aside(
                where=where,
                what="delta at 0 that surely leaks (Theorem 3.8) less the claim's",
                ours=lambda size=size, parameters=parameters: (
                    upper("expected_batch", size, 0.005, parameters).total_variation - claimed(0.005).total_variation
                ),
            )
            yield Aside(
                where=where,
                what="the Gaussian approximation's delta (Theorem 3.13) less the claim's",
                ours=lambda size=size, parameters=parameters: (
                    _approximation(size, parameters) - claimed(0.005).total_variation
                ),
            )
    for size in SIZES:
        yield Aside(
            where=f"Figure 5, ASGM, N {size:,}, n 26,010",
            what="exact delta at 0 less the claim's",
            ours=lambda size=size: (
                exact("realised_batch", size, 0.7, 26_010).total_variation - claimed(0.7).total_variation
            ),
            slow=size > 100,
        )


def upper(kind: Kind, records: int, rate: float, dimension: int) -> Claim:
    """The paper's upper bound on the trade-off curve: what surely leaks."""
    return guarantees.round_upper_bound(
        normalise_by=kind, records=records, rate=rate, noise_multiplier=NOISE, dimension=dimension
    )


def _approximation(records: int, dimension: int) -> float:
    found = guarantees.clt_bound(normaliser=records, dimension=dimension)
    return guarantees.gaussian(mu=found.mu).total_variation - 2 * found.gamma


def _many_rounds(dimension: int) -> float:
    leak = upper("floored_expected_batch", 140_199, 0.005, dimension).compose(200).total_variation
    return leak - claimed(0.005).compose(200).total_variation


def _zero_less_opposite() -> float:
    given = {"normalise_by": "expected_batch", "records": 3, "rate": 0.1, "noise_multiplier": 1.0, "dimension": 6}
    zero = guarantees.normalised_round(**given, shared=0.0, extra=0.0)  # type: ignore[arg-type]
    return zero.total_variation - guarantees.normalised_round(**given).total_variation  # type: ignore[arg-type]
