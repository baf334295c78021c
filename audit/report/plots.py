"""Trade-off plots, drawn from records alone."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from audit.record.record import AuditRecord
from audit.report.drawings import falling, observed
from audit.report.escaping import visible
from audit.report.figures import save
from guarantees.claim import Claim

CLAIM, THEORY, OBSERVED, PROVEN = "#1b6ca8", "#8a8a8a", "#444444", "#c0392b"
MOST_IN_A_ROW = 4
TITLE_WIDTH = 36
"""Characters above a small plot."""


def save_overview(records: tuple[AuditRecord, ...], path: str) -> None:
    """Small trade-off plots of several records, four or fewer in a row, as for the top of a page."""
    import matplotlib
    from matplotlib.figure import Figure

    records = tuple(record for record in records if record.ran)
    with matplotlib.rc_context({"svg.hashsalt": "dpsgd-audit", "font.size": 9}):
        rows = -(-len(records) // MOST_IN_A_ROW)
        columns = -(-len(records) // rows)
        figure = Figure(figsize=(3.0 * columns, 0.6 + 3.6 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes in grid.flat[len(records) :]:
            axes.remove()
        for axes, record in zip(grid.flat, records, strict=False):
            _draw(axes, record)
            title = [*textwrap.wrap(visible(record.name), TITLE_WIDTH), record.verdict.replace("_", " ")]
            axes.set_title("\n".join(title), fontsize=9, parse_math=False)
        for axes in grid[:, 0]:
            axes.set_ylabel("miss rate")
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, ncols=5 if columns > 3 else 3, loc="outside lower center")
        save(figure, Path(path), dpi=150, metadata={"Date": None} if path.endswith(".svg") else None)


def _draw(axes: Any, record: AuditRecord) -> None:
    """One trade-off plot."""
    axes.plot([0, 1], [1, 0], color="#cccccc", linewidth=0.8, linestyle=":")
    curve = record.claim.curve
    axes.plot(curve.alpha, curve.beta, color=CLAIM, linewidth=1.8, label="claimed: no test may lie below")
    axes.fill_between(curve.alpha, 0, curve.beta, color=CLAIM, alpha=0.06, linewidth=0)
    if record.theory is not None:
        label = "exact curve of the model"
        axes.plot(record.theory.alpha, record.theory.beta, color=THEORY, linewidth=1, linestyle="--", label=label)
    for index, grid in enumerate(record.grids):
        alpha, beta = observed(grid)
        label = "observed" if index == 0 else None
        axes.plot(alpha, beta, color=OBSERVED, linewidth=1, alpha=1 / (1 + index), label=label)
    if record.band.alpha:
        label = "band, all thresholds at once"
        axes.plot(*falling(record), color=PROVEN, linewidth=0.7, alpha=0.6, label=label)
    points = [point.limits for point in record.points] if len(record.points) <= 12 else []
    if points:
        axes.scatter([p.alpha for p in points], [p.beta for p in points], color=PROVEN, s=22, zorder=5, label="proven")
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axes.set_xlabel("false-alarm rate")
    axes.spines[["top", "right"]].set_visible(False)


def save_claims(claims: list[Claim], path: str) -> None:
    """Trade-off curves of several claims in one picture; the file's ending decides the format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 6.0 + 0.25 * len(claims)), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [1, 0], color="#cccccc", linewidth=0.8, linestyle=":", label="random guessing")
    alpha = np.concatenate([tail := np.logspace(-6, np.log10(0.5), 120), 1 - tail[-2::-1]])
    for claim in claims:
        axes.plot(alpha, claim.beta(alpha), linewidth=1.6, label="\n".join(textwrap.wrap(claim.describe(), 80)))
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axes.set_xlabel("false-alarm rate")
    axes.set_ylabel("miss rate")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center")
    save(figure, Path(path), dpi=150)
