"""How the cost of an audit grows with trials, dimension, records and rounds: a table and a plot.

    python benchmarks/growth.py [--figure docs/images/growth.svg] [--seconds 0.5]

Processor seconds of all threads for drawing, scoring with the exact likelihood ratio and counting; compilation is
apart. Rates are .05 with 4 records and 300 expected records otherwise, noise multiplier 10.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

import distinguishers
import mechanisms
from audit.trials import traced
from mechanisms import sampling

EDGES = np.linspace(-20, 20, 201, dtype=np.float32)[None]
COLOURS = {"full vectors": "#0072b2", "collapsed": "#d55e00", "shuffled": "#009e73"}
TITLES = {
    "trials": "n = 100; collapsed: N = 59,999",
    "dimension": "N = 4",
    "records": "n = 1,485,217",
    "rounds": "one epoch, transcripts",
}
Point = tuple[str, str, int, float]
"""Panel, line, what grows, and processor seconds: in all over trials, of one trial otherwise."""


def one_round(records: int, dimension: int, *, collapsed: bool):
    rate = 0.05 if records < 1000 else 300 / records
    step = mechanisms.one_round(normalise_by="expected_batch", rate=rate, clip=0.1, noise_multiplier=10.0)
    pair = mechanisms.worst_case_pair(records=records, dimension=dimension, clip=0.1)
    return source(step.collapsed() if collapsed else step, pair)


def shuffled(rounds: int):
    batches = sampling.shuffle(batch_size=1)
    step = mechanisms.many_rounds(sampler=batches, clip=1.0, noise_multiplier=0.5, sees="updates").collapsed()
    return source(step, mechanisms.worst_case_pair(records=rounds - 1, dimension=1, clip=1.0, relation="zero_out"))


def source(step, pair):
    test = distinguishers.likelihood_ratio(step, pair)
    return traced.compile_program(step, pair.without, test, side="without").source(jax.random.key(0))


def seconds(drawn, trials: int) -> float:
    """Of the second call: the first compiles."""
    drawn.cells(0, drawn.chunk, EDGES)
    began = time.process_time()
    drawn.cells(0, trials, EDGES)
    return time.process_time() - began


def each(drawn, least: float) -> float:
    """Seconds a trial, from whole chunks that together take at least this long."""
    trials = drawn.chunk
    while (spent := seconds(drawn, trials)) < least:
        trials *= 2
    return spent / trials


def points(least: float) -> Iterator[Point]:
    for line, given in (("full vectors", (4, 100)), ("collapsed", (59_999, 1_485_217))):
        drawn = one_round(*given, collapsed=line == "collapsed")
        for trials in (10**3, 10**4, 10**5, 10**6):
            yield "trials", line, trials, seconds(drawn, trials)
    for dimension in (10, 100, 1000, 10_000, 100_000, 1_000_000):
        for line in ("full vectors", "collapsed"):
            yield "dimension", line, dimension, each(one_round(4, dimension, collapsed=line == "collapsed"), least)
    for records in (4, 100, 1000, 10_000, 60_000):
        yield "records", "collapsed", records, each(one_round(records, 1_485_217, collapsed=True), least)
    for rounds in (10, 100, 1000, 10_000):
        yield "rounds", "shuffled", rounds, each(shuffled(rounds), least)


def draw(found: list[Point], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.hashsalt": "dpsgd-audit", "font.size": 9, "svg.fonttype": "none"}):
        figure, panels = pyplot.subplots(1, 4, figsize=(11.0, 3.0), layout="constrained")
        for axes, panel in zip(panels, TITLES, strict=True):
            for line in COLOURS:
                here = [(x, y) for name, own, x, y in found if (name, own) == (panel, line)]
                if here:
                    x, y = np.array(here).T
                    scale = 1.0 if panel == "trials" else 1e6
                    axes.plot(x, y * scale, marker="o", markersize=3, color=COLOURS[line], label=line)
            axes.set(xscale="log", yscale="log", xlabel=panel)
            axes.set_title(TITLES[panel], fontsize=9)
            axes.minorticks_off()
            axes.set_ylabel("CPU seconds" if panel == "trials" else "CPU microseconds a trial")
            low, high = axes.get_ylim()
            axes.set_ylim(min(low, high / 100), high)
            axes.grid(visible=True, color="#eeeeee")
            axes.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", type=Path, help="where to draw it (.svg, .png)")
    parser.add_argument("--seconds", type=float, default=0.5, help="least time of a measurement")
    arguments = parser.parse_args()
    print("| grows | outputs | to | CPU seconds | CPU microseconds a trial |\n|---|---|---|---|---|")
    found = []
    for point in points(arguments.seconds):
        panel, line, x, spent = point
        shown = f"{spent:.3g} | {spent / x * 1e6:.3g}" if panel == "trials" else f"| {spent * 1e6:.3g}"
        print(f"| {panel} | {line} | {x:,} | {shown} |", flush=True)
        found.append(point)
    if arguments.figure:
        draw(found, arguments.figure)


if __name__ == "__main__":
    main()
