"""002: reporting privacy by mu-GDP and regret [gomez2025]."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np
from scipy.optimize import root_scalar
from scipy.special import ndtri

import guarantees
from audit.reproduce.item import Item
from guarantees.claim import Claim

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
TABLE_3 = {
    1e-5: ("0.03", "0.14", "0.27", "0.50", "0.92", "1.31", "1.67", "2.00"),
    1e-6: ("0.03", "0.12", "0.24", "0.45", "0.84", "1.20", "1.53", "1.85"),
    1e-9: ("0.02", "0.09", "0.18", "0.35", "0.67", "0.97", "1.26", "1.54"),
}
RATE = 2**14 / 50_000
TABLE_4 = {
    1.0: (40.0, 906),
    2.0: (24.0, 1156),
    3.0: (20.0, 1656),
    4.0: (16.0, 1765),
    6.0: (12.0, 2007),
    8.0: (9.4, 2000),
}
"""Epsilon at 1e-5: noise multiplier and steps."""
TABLE_5 = {1.0: (21.1, 250), 2.0: (15.8, 500), 4.0: (12.0, 1000), 8.0: (9.4, 2000)}
TABLE_2 = {1.0: "0.21", 2.0: "0.39", 4.0: "0.72", 8.0: "1.3"}
TABLE_2_WRONG = (
    "the table's row of mu contradicts the paper's own text (1.57 for the last): the trainings of its Table 4 have "
    "by the same procedure .247, .465, .863, 1.566"
)
RULE_OF_THUMB = "at noise 2 it just fails for rates near .1: .0122, and .0103 after 1,000 steps"


def mu_of(epsilon: float, delta: float) -> float:
    """The mu whose Gaussian curve passes through (epsilon, delta)."""
    return root_scalar(
        lambda mu: guarantees.gaussian(mu=mu).delta(epsilon) - delta, bracket=(1e-3, 20.0), xtol=1e-10
    ).root


@functools.cache
def training(noise: float, steps: int) -> Claim:
    """DP-SGD on CIFAR-10 as De et al. trained it, with replacement of one record by nothing."""
    return guarantees.poisson_training(rate=RATE, noise_multiplier=noise, steps=steps)


def items() -> Iterator[Item]:
    """Every table, printed number and figure of the paper."""
    yield Item(
        where="Figure 1 left", what="Laplace (b = 1) beside the curve of epsilon 1", why="drawn, no printed values"
    )
    yield from _first_figure()
    yield from _illustrations()
    for epsilon, printed in TABLE_2.items():
        noise, steps = TABLE_4[epsilon]
        yield Item(
            where=f"Table 2, epsilon {epsilon:g}",
            what="mu of the training of Table 4",
            theirs=printed,
            ours=lambda noise=noise, steps=steps: guarantees.mu_star(training(noise, steps)),
            why=TABLE_2_WRONG,
        )
    for name, table in (("4", TABLE_4), ("5", TABLE_5)):
        for epsilon, (noise, steps) in table.items():
            yield Item(
                where=f"Table {name}, epsilon {epsilon:g}",
                what=f"epsilon at 1e-5 of sigma {noise:g}, {steps} steps",
                theirs=f"{epsilon:.1f}",
                ours=lambda noise=noise, steps=steps: float(training(noise, steps).epsilon(1e-5)),
                why="De et al. accounted by Renyi orders, which overstates; this is the composition itself",
            )
    for delta, row in TABLE_3.items():
        for epsilon, printed in zip(EPSILONS, row, strict=True):
            yield Item(
                where=f"Table 3, epsilon {epsilon:g}, delta {delta:g}",
                what="mu of the Gaussian curve through (epsilon, delta)",
                theirs=printed,
                ours=functools.partial(mu_of, epsilon, delta),
            )
    yield from _fourth_figure()
    yield from _rest()
    yield from _differences()


def _first_figure() -> Iterator[Item]:
    noise, steps = TABLE_4[8.0]
    yield Item(
        where="Figure 1 middle, section 5",
        what="mu of DP-SGD, sigma 9.4, 2,000 steps",
        theirs="1.57",
        ours=lambda: guarantees.mu_star(training(noise, steps)),
    )
    yield Item(
        where="Figure 1 middle, section 5",
        what="regret of reporting it by mu",
        theirs="≈1e-3",
        ours=lambda: guarantees.regret(training(noise, steps)),
    )
    yield Item(
        where="Figure 1 middle, section 1",
        what="largest true positive rate at false positive rate .1",
        theirs="61%",
        ours=lambda: 1 - float(training(noise, steps).beta(0.1)),
    )
    yield Item(
        where="Figure 1 middle, section 1",
        what="the same by its epsilon at 1e-5 alone",
        theirs="99.95%",
        ours=lambda: 1 - float(_single(float(training(noise, steps).epsilon(1e-5))).beta(0.1)),
    )
    yield Item(where="Figure 1 right", what="regret of epsilon, zCDP, RDP and mu", why="drawn, no printed values")
    yield Item(
        where="Proposition 4.1, the same training",
        what="2 regret less what mu overstates the advantage by",
        theirs=">0",
        ours=lambda: _slack(training(noise, steps)),
    )


def _illustrations() -> Iterator[Item]:
    for where, what, why in (
        ("Figure 2", "the metric behind regret, an illustration", "no values"),
        ("Figure 3", "the procedure and a listing of the authors' library", "no values"),
        ("Table 1", "definitions of privacy against three wishes", "in words, no values"),
        ("Table 2", "accuracies of De et al.", "training study, not reproduced"),
    ):
        yield Item(where=where, what=what, why=why)


def _fourth_figure() -> Iterator[Item]:
    for noise in (2.0, 4.0):
        for rate in (0.001, 0.01, 0.1, 0.5):
            yield Item(
                where=f"Figure 4, rule of thumb, sigma {noise:g}, rate {rate:g}",
                what="regret after 400 steps",
                theirs="<0.01",
                ours=functools.partial(_regret_after, rate, noise, 400),
                why=RULE_OF_THUMB if (noise, rate) == (2.0, 0.1) else "",
                slow=rate > 0.1,
            )
    steps = (400, 1000, 2000)
    for fewer, more in itertools.pairwise(steps):
        yield Item(
            where=f"Figure 4, {more:,} steps, sigma 2, rate .01",
            what=f"regret less that after {fewer:,} steps",
            theirs="<0",
            ours=lambda more=more, fewer=fewer: _regret_after(0.01, 2.0, more) - _regret_after(0.01, 2.0, fewer),
        )
    yield Item(
        where="Figure 4, rate .01, 400 steps",
        what="regret at sigma 4 less that at sigma 2",
        theirs="<0",
        ours=lambda: _regret_after(0.01, 4.0, 400) - _regret_after(0.01, 2.0, 400),
    )
    for rate in (0.001, 0.5):
        yield Item(
            where=f"Figure 4, not monotone in the rate, sigma 2, rate {rate:g}",
            what="regret after 400 steps less that at rate .1",
            theirs="<0",
            ours=lambda rate=rate: _regret_after(rate, 2.0, 400) - _regret_after(0.1, 2.0, 400),
            slow=rate > 0.1,
        )


def _differences() -> Iterator[Item]:
    """Appendix F: how far the Gaussian curve lies below the training's own."""
    for figure, table in (("7", {key: TABLE_4[key] for key in TABLE_2}), ("8", TABLE_5)):
        for epsilon, (noise, steps) in table.items():
            yield Item(
                where=f"Figure {figure}, appendix F, epsilon {epsilon:g}, sigma {noise:g}",
                what="largest difference of the two curves less 2 regret",
                theirs=">0" if noise == 9.4 else "<0",
                ours=lambda noise=noise, steps=steps: _beyond(training(noise, steps)),
                why="by 1% at epsilon 4 too; the text excepts only sigma 9.4" if epsilon == 4.0 else "",
            )


def _rest() -> Iterator[Item]:
    for epsilon, (noise, steps) in TABLE_4.items():
        yield Item(
            where=f"Table 2's caption, epsilon {epsilon:g}",
            what="regret of reporting mu",
            theirs="<0.001",
            ours=lambda noise=noise, steps=steps: guarantees.regret(training(noise, steps)),
            why="the last is 1.01e-3; the text says about 1e-3",
        )
    yield Item(
        where="Section 5, TopDown",
        what="mu of the census's release",
        theirs="2.702",
        why="study: its privacy-loss allocation is in a file of the census bureau, not in the paper",
    )
    yield Item(where="Figure 5 left", what="TopDown's curve", why="study: needs the same file")
    yield Item(
        where="Figure 5 right, section 6",
        what="regret of mu for randomised response, epsilon 1",
        theirs="0.058",
        ours=lambda: guarantees.regret(guarantees.randomised_response(epsilon=1.0)),
    )
    yield Item(
        where="Section 5, Table 3",
        what="mu at (8, 1e-9) less mu at (6, 1e-5)",
        theirs="<0",
        ours=lambda: mu_of(8.0, 1e-9) - mu_of(6.0, 1e-5),
    )
    yield Item(
        where="Proposition 6.1, epsilon 1",
        what="mu* of randomised response less -2 Phi^-1(1/(e+1))",
        theirs="0.000",
        ours=lambda: guarantees.mu_star(guarantees.randomised_response(epsilon=1.0)) - _pure(1.0),
    )
    yield Item(
        where="Proposition 6.2, (1, 1e-5)",
        what="1/mu* of an (epsilon, delta) mechanism with mass at infinity",
        theirs="0.0",
        ours=lambda: 1 / guarantees.mu_star(guarantees.epsilon_delta(epsilon=1.0, delta=1e-5), alpha_range=(0.0, 1.0)),
    )
    yield Item(
        where="Figure 6, appendix B",
        what="delta at epsilon 8 of the Gaussian calibrated to (8, 1e-5)",
        theirs="1e-5",
        ours=lambda: float(guarantees.gaussian(mu=mu_of(8.0, 1e-5)).delta(8.0)),
    )
    yield Item(
        where="Figure 6 bottom, appendix B",
        what="largest true positive rate at false positive rate .001",
        ours=lambda: 1 - float(guarantees.gaussian(mu=mu_of(8.0, 1e-5)).beta(1e-3)),
    )
    yield Item(
        where="Figure 6 bottom, appendix B",
        what="the same by (8, 1e-5) alone, less it",
        theirs=">0",
        ours=lambda: float(guarantees.gaussian(mu=mu_of(8.0, 1e-5)).beta(1e-3) - _single(8.0).beta(1e-3)),
    )
    yield Item(
        where="Table 4, noise for a target mu",
        what="sigma at which 2,000 steps have mu 1.57",
        theirs="9.4",
        ours=_noise_for,
        slow=True,
    )


def _single(epsilon: float) -> Claim:
    """What one pair at delta 1e-5 says."""
    return guarantees.epsilon_delta(epsilon=epsilon, delta=1e-5)


def _slack(claim: Claim) -> float:
    reported = guarantees.gaussian(mu=guarantees.mu_star(claim))
    return 2 * guarantees.regret(claim) - abs(reported.total_variation - claim.total_variation)


def _beyond(claim: Claim) -> float:
    alpha = np.geomspace(1e-8, 1.0, 400)
    reported = guarantees.gaussian(mu=guarantees.mu_star(claim))
    return float(np.max(claim.beta(alpha) - reported.beta(alpha))) - 2 * guarantees.regret(claim)


def _noise_for() -> float:
    return root_scalar(
        lambda noise: guarantees.mu_star(training(noise, 2000)) - 1.57, bracket=(9.2, 9.6), xtol=0.01
    ).root


@functools.cache
def _regret_after(rate: float, noise: float, steps: int) -> float:
    return guarantees.regret(guarantees.poisson_training(rate=rate, noise_multiplier=noise, steps=steps))


def _pure(epsilon: float) -> float:
    return float(-2 * ndtri(1 / (np.exp(epsilon) + 1)))
