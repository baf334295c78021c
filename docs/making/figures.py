"""The figures of statistics.md: `python docs/making/figures.py` draws them again."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from scipy.stats import norm

import audit
import guarantees
from audit.bounds.clopper_pearson import limits

matplotlib.use("Agg")
from matplotlib import pyplot

IMAGES = Path(__file__).parents[1] / "images"
CLAIM, PROVEN, QUIET = "#0072b2", "#d55e00", "#888888"
THIN = {"arrowstyle": "-", "lw": 0.6}
PALE = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
RISK, DELTA, TRUE_MU = 0.05, 1e-5, 1.0
STYLE = {"svg.hashsalt": "dpsgd-audit", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}


def main() -> None:
    """Draw both."""
    with matplotlib.rc_context(STYLE):
        _save(_counts(), "statistics-counts.svg")
        _save(_trials(), "statistics-trials.svg")


def _save(figure, name: str) -> None:
    figure.savefig(IMAGES / name, metadata={"Date": None})
    pyplot.close(figure)


def _counts():
    """Left: tests are points and a claim is a curve. Right: counts are rectangles that shrink with the trials."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(7.4, 3.5), layout="constrained", sharey=True)
    claim, truth = guarantees.gaussian(mu=0.5), guarantees.gaussian(mu=1.5)
    alpha = np.linspace(0, 1, 201)
    for axes in (left, right):
        axes.plot(alpha, claim.beta(alpha), color=CLAIM, linewidth=1.8)
        axes.fill_between(alpha, 0, claim.beta(alpha), color=CLAIM, alpha=0.08, linewidth=0)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="false alarms (alpha)", aspect="equal")
    left.set_ylabel("misses (beta)")
    left.plot([0, 1], [1, 0], color=QUIET, linewidth=0.8, linestyle=":")
    left.text(0.52, 0.51, "guessing", color=QUIET, rotation=-45, rotation_mode="anchor")
    left.text(0.04, 0.05, "no test of a mechanism\nthat keeps the claim\nlies in here", color=CLAIM, fontsize=8)
    kept, broken = (0.25, claim.beta(0.25) + 0.06), (0.12, truth.beta(0.12))
    left.plot(*kept, "o", color="black")
    left.annotate(
        "a test that shows nothing", kept, (0.42, 0.78), fontsize=8, arrowprops={"arrowstyle": "-", "lw": 0.6}
    )
    left.plot(*broken, "o", color=PROVEN)
    left.annotate(
        "one test that refutes it", broken, (0.22, 0.29), fontsize=8, arrowprops={"arrowstyle": "-", "lw": 0.6}
    )
    left.set_title("a test is a point, a claim is a curve", fontsize=9)
    for trials, shade in ((20, 0.4), (100, 0.7), (2000, 1.0)):
        false_alarms, misses = (round(rate * trials) for rate in broken)
        found = limits(counts(false_alarms, trials, misses), risk=RISK)
        corner = found.alpha, found.beta
        right.plot([0, corner[0], corner[0]], [corner[1], corner[1], 0], color=PROVEN, alpha=shade, linewidth=1.2)
        right.plot(*corner, "s", color=PROVEN, alpha=shade, markersize=4)
        below = -0.07 if trials == 2000 else 0.015
        right.text(
            corner[0] + 0.015, corner[1] + below, f"{trials:,} trials per side", fontsize=8, color=PROVEN, bbox=PALE
        )
    right.plot(*broken, "o", color="black")
    right.set_title("counts prove a corner, nearer with more trials", fontsize=9)
    return figure


def _trials():
    """Epsilon that the best test proves at its typical counts, and the ceiling: no error at all."""
    figure, axes = pyplot.subplots(figsize=(5.4, 3.2), layout="constrained")
    trials = np.unique(np.logspace(2, 8, 25).round().astype(int))
    truth = guarantees.gaussian(mu=TRUE_MU).epsilon(DELTA)
    axes.axhline(truth, color=CLAIM, linewidth=1.2)
    axes.text(trials[-1], truth + 0.1, f"truth: {truth:.2f}", color=CLAIM, ha="right")
    axes.plot(trials, [typical_bound(int(n)) for n in trials], color=PROVEN, linewidth=1.8)
    axes.text(2e5, 2.35, "proven by the best test", color=PROVEN)
    ceiling = [audit.bounds.joint_epsilon_bound(counts(0, int(n), 0), delta=DELTA, risk=RISK) for n in trials]
    axes.plot(trials, ceiling, color=QUIET, linewidth=1, linestyle="--")
    axes.text(700, 5.4, "ceiling: not one error", color=QUIET)
    axes.set(xscale="log", xlabel="trials per side", ylabel=f"epsilon at delta {DELTA:g}", ylim=(0, 8))
    return figure


def typical_bound(trials: int) -> float:
    """The best bound over thresholds fixed beforehand, at the counts to be expected."""
    return max(
        audit.bounds.joint_epsilon_bound(
            counts(round(trials * norm.sf(t)), trials, round(trials * norm.cdf(t - TRUE_MU))), delta=DELTA, risk=RISK
        )
        for t in np.arange(0.5, 5.6, 0.25)
    )


def counts(false_alarms: int, trials: int, misses: int) -> audit.ErrorCounts:
    """Errors of one test, as many trials on either side."""
    return audit.ErrorCounts(false_alarms=false_alarms, trials_without=trials, misses=misses, trials_with=trials)


if __name__ == "__main__":
    main()
