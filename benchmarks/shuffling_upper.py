"""The guarantee for shuffled batches beside what is known to leak: tables and figure of docs/shuffling-upper-bound.md.

With ``--trainings`` the table of docs/trainings.md: what holds if the loader shuffles and the accountant says Poisson.

    python benchmarks/shuffling_upper.py [--processes 6] [--trainings | --figure docs/shuffling-upper-bound.svg]

Epsilons at delta 1e-5. Seconds are those of the processor, from nothing: for one epsilon, and for the summary that
``dpsgd-audit claim --sampler shuffle-upper`` prints.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np
from scipy.optimize import root_scalar

import guarantees
from guarantees.summary import summarise

# the root as well: in a new process the folder tests/guarantees would hide the package of an editable installation
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from three_symbol_clones import three_symbol_clones

DELTA = 1e-5
ROWS = ((3.0, 1000), (5.0, 10_000), (2.0, 10_000), (3.0, 10_000), (2.0, 1000), (1.0, 10_000), (1.0, 1000), (0.7, 1000))
EPOCHS = (1, 10, 100)
TRAININGS = (
    (3.0, 10, 1),
    (3.0, 10, 10),
    (0.5, 100, 1),
    (0.7, 1000, 1),
    (1.0, 1000, 1),
    (1.0, 10_000, 1),
    (2.0, 1000, 1),
    (2.0, 10_000, 1),
    (2.0, 10_000, 10),
    (2.0, 10_000, 100),
    (3.0, 1000, 1),
    (3.0, 1000, 10),
    (3.0, 1000, 100),
)
COLOURS = {
    "known leak": "#0072b2",
    "guarantee": "#d55e00",
    "3-symbol clones": "#e69f00",
    "Poisson": "#009e73",
    "batches in order": "#666666",
}
STYLES = {"known leak": "-", "guarantee": "-", "3-symbol clones": "--", "Poisson": ":", "batches in order": "-."}


def three_symbols(noise: float, rounds: int) -> float:
    """Epsilon of the three-symbol clone bound."""

    def excess(epsilon: float) -> float:
        found = three_symbol_clones(rounds=rounds, noise_multiplier=noise, epsilon=epsilon)
        return float(np.log(max(found, 1e-300) / DELTA))

    return float(root_scalar(excess, bracket=(1e-4, 12.0), xtol=1e-5).root)


def row(noise: float, rounds: int) -> dict[str, float]:
    """All epsilons of one setting, and the guarantee's seconds."""
    began = time.process_time()
    claim = guarantees.fixed_batch_upper(rounds=rounds, noise_multiplier=noise)
    found = {"guarantee": float(claim.epsilon(DELTA)), "seconds": time.process_time() - began}
    found["three symbols"] = three_symbols(noise, rounds)
    found["leak"] = float(guarantees.fixed_batch_shuffle(rounds=rounds, noise_multiplier=noise).epsilon(DELTA))
    return found


def one_epoch(setting: tuple[float, int]) -> str:
    """A line of the first table."""
    noise, rounds = setting
    one, order = row(noise, rounds), guarantees.deterministic_batches(noise_multiplier=noise).epsilon(DELTA)
    shown = " | ".join(f"{one[name]:.4g}" for name in ("leak", "three symbols", "guarantee"))
    summarised = summary_seconds(noise, rounds) + one["seconds"]
    return f"| {noise:g}, {rounds:g} | {shown} | {order:.4g} | {one['seconds']:.1f} | {summarised:.1f} |"


def summary_seconds(noise: float, rounds: int) -> float:
    """What a summary costs after one epsilon."""
    began = time.process_time()
    summarise(guarantees.fixed_batch_upper(rounds=rounds, noise_multiplier=noise))
    return time.process_time() - began


def several(setting: tuple[tuple[float, int], int]) -> str:
    """A line of the second table."""
    (noise, rounds), epochs = setting
    began = time.process_time()
    claims = (
        guarantees.fixed_batch_shuffle(rounds=rounds, noise_multiplier=noise),
        guarantees.fixed_batch_upper(rounds=rounds, noise_multiplier=noise),
        guarantees.deterministic_batches(noise_multiplier=noise),
    )
    shown = " | ".join(f"{float(claim.compose(epochs).epsilon(DELTA)):.4g}" for claim in claims)
    return f"| {noise:g}, {rounds:g} | {epochs} | {shown} | {time.process_time() - began:.1f} |"


def training(setting: tuple[float, int, int]) -> str:
    """A line of the table of docs/trainings.md; in brackets the pair alone, where adaptive queries leak more."""
    noise, rounds, epochs = setting
    began = time.process_time()
    poisson = guarantees.poisson_training(
        rate=1 / rounds, noise_multiplier=noise, steps=rounds * epochs, relation="zero_out"
    )
    leak = guarantees.adaptive_shuffle(rounds=rounds, noise_multiplier=noise, epochs=epochs)
    others = (
        guarantees.fixed_batch_shuffle(rounds=rounds, noise_multiplier=noise),
        guarantees.fixed_batch_upper(rounds=rounds, noise_multiplier=noise),
        guarantees.deterministic_batches(noise_multiplier=noise),
    )
    claimed, leaked = float(poisson.epsilon(DELTA)), float(leak.epsilon(DELTA))
    pair, upper, order = (float((one if epochs == 1 else one.compose(epochs)).epsilon(DELTA)) for one in others)
    more = f" (pair: {pair:.4g})" if leaked > pair * (1 + 1e-3) else ""
    shown = f"{claimed:.4g} | {leaked:.4g}{more} | {upper:.4g} | {order:.4g}"
    return f"| {noise:g} | {rounds:,} | {epochs} | {shown} | {time.process_time() - began:.0f} |"


def trainings(processes: int) -> None:
    """Claimed, leaked at least, guaranteed at most, batches in order."""
    method = multiprocessing.get_context("spawn")
    print("| sigma | T | epochs | claimed | leaked at least | guaranteed at most | in order | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=method, max_tasks_per_child=1) as pool:
        for line in pool.map(training, TRAININGS):
            print(line, flush=True)


def tables(processes: int) -> None:
    """One epoch for all settings, several epochs for those where the guarantee is good; one process a line."""
    method = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=method, max_tasks_per_child=1) as pool:
        first, second = pool.map(one_epoch, ROWS), pool.map(several, itertools.product(ROWS[:3], EPOCHS))
        print("| sigma, T | known leak | three symbols | guarantee | fixed order | seconds | summary |")
        print("|---|---|---|---|---|---|---|")
        for line in first:
            print(line, flush=True)
        print("\n| sigma, T | epochs | known leak | guarantee | fixed order | seconds, all |")
        print("|---|---|---|---|---|---|")
        for line in second:
            print(line, flush=True)


def figure(path: Path) -> None:
    """Epsilon over sigma at T = 1e3 and 1e4."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    noises = np.array([0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0])
    with matplotlib.rc_context({"svg.hashsalt": "dpsgd-audit", "font.size": 9, "svg.fonttype": "none"}):
        drawn, panels = pyplot.subplots(1, 2, figsize=(8.2, 3.6), sharey=True, layout="constrained")
        for axes, rounds in zip(panels, (1000, 10_000), strict=True):
            found = [row(float(noise), rounds) for noise in noises]
            sampled = [
                guarantees.poisson_training(
                    rate=1 / rounds, noise_multiplier=float(noise), steps=rounds, relation="zero_out"
                ).epsilon(DELTA)
                for noise in noises
            ]
            lines = {
                "batches in order": [
                    guarantees.deterministic_batches(noise_multiplier=float(noise)).epsilon(DELTA) for noise in noises
                ],
                "3-symbol clones": [one["three symbols"] for one in found],
                "guarantee": [one["guarantee"] for one in found],
                "known leak": [one["leak"] for one in found],
                "Poisson": sampled,
            }
            for name, values in lines.items():
                axes.plot(noises, values, STYLES[name], color=COLOURS[name], marker="o", markersize=3, label=name)
            axes.fill_between(noises, lines["known leak"], lines["guarantee"], color="#999999", alpha=0.15, linewidth=0)
            axes.set(xscale="log", yscale="log", xlabel="noise multiplier", title=f"T = {rounds:,} batches")
            axes.set_xticks([0.8, 1, 2, 4, 6, 10], ["0.8", "1", "2", "4", "6", "10"])
            axes.minorticks_off()
            axes.grid(visible=True, color="#eeeeee")
        panels[0].set_ylabel("epsilon at delta 1e-5, one epoch")
        panels[0].legend(frameon=False)
        drawn.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Tables, and the figure where a path is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--trainings", action="store_true")
    given = parser.parse_args()
    if given.figure is not None:
        figure(given.figure)
    elif given.trainings:
        trainings(given.processes)
    else:
        tables(given.processes)


if __name__ == "__main__":
    main()
