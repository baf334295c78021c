"""The papers' figures, drawn from our curves in the style of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import guarantees
from audit.report.figures import SERIES, drawn
from guarantees.summary import mu_star
from papers import batches, limits, normalised, reporting, shuffled

WIDTH = 3.3
ALPHA = np.concatenate([tail := np.logspace(-6, np.log10(0.5), 60), 1 - tail[-2::-1]])

Lines = Mapping[str, tuple[Any, Any]]


def _lines(path: Path, lines: Lines, *, x: str, y: str, **axes: Any) -> None:
    with drawn(path, width=WIDTH, height=0.8 * WIDTH) as plot:
        for number, (label, (along, up)) in enumerate(lines.items()):
            plot.plot(along, up, color=SERIES[number % len(SERIES)], label=label)
        plot.set(xlabel=x, ylabel=y, **axes)
        plot.legend(frameon=False)


def _curves(path: Path, claims: Mapping[str, Any]) -> None:
    lines = {label: (ALPHA, claim.beta(ALPHA)) for label, claim in claims.items()}
    _lines(path, lines, x="false-alarm rate", y="miss rate", xlim=(0, 1), ylim=(0, 1))


def _wang_5(path: Path) -> None:
    sizes = {f"N = {size:,}": normalised.upper("expected_batch", size, 0.005, 26_010) for size in (4, 999, 59_999)}
    _curves(path, {"claimed": normalised.claimed(0.005), **sizes})


def _wang_7(path: Path) -> None:
    leak = normalised.upper("floored_expected_batch", 140_199, 0.005, 26_010).compose(200)
    _curves(path, {"claimed, 200 rounds": normalised.claimed(0.005).compose(200), "FEASGM, 200 rounds": leak})


def _vandijk_1(path: Path) -> None:
    rounds = np.logspace(5, 10, 40)
    lines = {
        f"sigma {noise:g}": (
            rounds,
            [guarantees.shuffle_berry_esseen(rounds=int(m), noise_multiplier=noise).delta for m in rounds],
        )
        for noise in (0.75, 1.0, 1.5, 2.0)
    }
    _lines(path, lines, x="rounds", y="delta", xscale="log", yscale="log", ylim=(1e-5, 1))


def _vandijk_3(path: Path) -> None:
    noise = np.linspace(0.5, 3.0, 40)
    lines = {f"delta {d:g}": (noise, [shuffled.rounds(d, float(s), False) for s in noise]) for d in (1e-2, 1e-3, 1e-4)}
    _lines(path, lines, x="noise multiplier", y="rounds", yscale="log")


def _gomez_1(path: Path) -> None:
    training = reporting.training(9.4, 2000)
    _curves(path, {"DP-SGD": training, "mu-GDP": guarantees.gaussian(mu=mu_star(training))})


def _gomez_5(path: Path) -> None:
    response = guarantees.randomised_response(epsilon=1.0)
    _curves(path, {"randomised response": response, "mu-GDP": guarantees.gaussian(mu=mu_star(response))})


def _chua_1(path: Path) -> None:
    noise = np.linspace(0.4, 1.4, 11)
    lines = {
        "deterministic": (noise, [float(batches.deterministic(float(s)).epsilon(1e-6)) for s in noise]),
        "shuffled, lower": (noise, [float(batches.shuffled(float(s), 10_000).epsilon(1e-6)) for s in noise]),
    }
    _lines(path, lines, x="noise multiplier", y="epsilon at 1e-6", yscale="log")


def _chua_6(path: Path) -> None:
    epsilon = np.linspace(0.0, 6.0, 40)
    lines = {
        "deterministic": (epsilon, batches.deterministic(0.8).delta(epsilon)),
        "shuffled, lower": (epsilon, batches.shuffled(0.8, 1000).delta(epsilon)),
        "Poisson": (epsilon, batches.poisson(0.8, 1000).delta(epsilon)),
    }
    _lines(path, lines, x="epsilon", y="delta", yscale="log", ylim=(1e-10, 1))


def _ertan_3(path: Path) -> None:
    rounds = np.logspace(1, 8, 60)
    lines = {
        f"s {s:g}": (rounds, [max(0.0, limits.explicit_bound(int(m), s)) for m in rounds]) for s in (0.7, 0.8, 0.9)
    }
    _lines(path, lines, x="rounds", y="separation", xscale="log")


def _ertan_4(path: Path) -> None:
    rounds = np.logspace(1, 6, 40)
    lines = {f"{e} epochs": (rounds, [limits.predicted(int(m), e) for m in rounds]) for e in (1, 4, 16)}
    _lines(path, lines, x="rounds", y="separation", xscale="log")


DRAWINGS: Mapping[str, Mapping[str, Callable[[Path], None]]] = {
    "wang2026": {"figure-5": _wang_5, "figure-7": _wang_7},
    "vandijk2026": {"figure-1": _vandijk_1, "figure-3": _vandijk_3},
    "gomez2025": {"figure-1-middle": _gomez_1, "figure-5-right": _gomez_5},
    "chua2024": {"figure-1": _chua_1, "figure-6": _chua_6},
    "ertan2026": {"figure-3": _ertan_3, "figure-4": _ertan_4},
}
"""By paper and figure."""


def draw_all(keys: set[str], folder: Path, *, ending: str = "svg") -> list[Path]:
    """Every figure of these papers, as files named by paper and figure."""
    paths = []
    for key, drawings in DRAWINGS.items():
        for name, draw in drawings.items() if key in keys else ():
            paths.append(folder / f"{key}-{name}.{ending}")
            draw(paths[-1])
    return paths
