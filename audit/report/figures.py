"""Figures for papers: column width, one style, colours that colour-blind readers can tell apart."""

from __future__ import annotations

import contextlib
import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from audit.record.files import replacing
from audit.record.record import AuditRecord
from audit.report.catalogue import FIGURES
from audit.report.ceiling import ceiling, most_epsilon
from audit.report.drawings import falling, observed
from audit.report.escaping import latex_text, visible
from guarantees.checks import checked, require
from guarantees.claim import Claim

INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
CLAIM, EXACT, OBSERVED, PROVEN, CEILING = "#0072b2", "#777777", "#000000", "#d55e00", "#cc79a7"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = "osD^vPX"
OTHERS = "#bbbbbb"
"""Colour of observed curves of scores that no test used."""
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
"""Line styles of observed curves of scores that tests used."""
SMALLEST = 1e-7
NAME_WIDTH = 32
"""Characters per line of an audit's name beside its row, which has room for two lines."""
LETTERS, MOST_COLUMNS = 17, 4
"""Of a legend: letters to an inch, and columns."""
STYLE: dict[Any, Any] = {
    "axes.prop_cycle": f"cycler(color={list(SERIES)})",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "dpsgd-audit",
    "pdf.fonttype": 42,
}
"""Settings of matplotlib that the figures are drawn with: ``pyplot.rcParams.update(audit.STYLE)`` for your own."""


def width_in_inches(text: str) -> float:
    """``3.3in``, ``8.5cm`` or ``240pt`` in inches."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*(in|cm|mm|pt)\s*", text)
    if found is None:
        raise ValueError(f"--width is written like 3.3in, 8.5cm or 240pt, got {text!r}.")
    width = float(found.group(1)) * INCHES[found.group(2)]
    require("width", 0.5 <= width <= 40, "between 0.5 and 40 inches", text)
    return width


def save_figures(records: tuple[AuditRecord, ...], folder: Path, *, ending: str, width: float) -> list[Path]:
    """Save one figure per audit that ran, linear beside logarithmic, numbered as the records; and one of all audits."""
    require("figures", ending in FIGURES, f"one of {FIGURES}", ending)
    paths = []
    for number, record in enumerate(records, start=1):
        if not record.drawn:
            continue
        paths.append(Path(folder) / f"audit-{number:0{len(str(len(records)))}d}.{ending}")
        with drawn(paths[-1], width=width, height=0.46 * width, columns=2) as (left, right):
            draw(record, left)
            draw(record, right, logarithmic=True)
            right.set_ylabel("")
            _legend(left, path=paths[-1])
    ran = tuple(record for record in records if record.ran)
    if len(ran) > 1:
        paths.append(save_overview(ran, Path(folder) / f"audits.{ending}", width=width))
    return paths


def save_overview(records: tuple[AuditRecord, ...], path: Path, *, width: float) -> Path:
    """Save one figure of all audits, one row each: epsilon claimed, proven, and the most that its trials can prove."""
    names = ["\n".join(label(line, path) for line in _two_lines(record.name)) for record in reversed(records)]
    with drawn(path, width=width, height=0.6 + 0.24 * len(records)) as axes:
        overview(records, axes)
        axes.set_yticks(range(len(records)), names)
        _legend(axes)
    return path


def overview(records: tuple[AuditRecord, ...], axes: Any) -> None:
    """Draw all audits on axes, one row each, the first on top."""
    rows = {len(records) - 1 - place: record for place, record in enumerate(records)}
    proven = {row: record.epsilon(record.report_delta) for row, record in rows.items()}
    claimed = {row: found for row, record in rows.items() if np.isfinite(found := _claimed(record, "epsilon"))}
    most = {row: found for row, record in rows.items() if (found := most_epsilon(record)) is not None}
    # a claim may be violated at another point of its curve, with a bar that ends before what is claimed here
    for words, violated in (("proven, at least", False), ("the same, claim violated", True)):
        bars = {row: found for row, found in proven.items() if (rows[row].verdict == "violation") == violated}
        if bars:
            face = PROVEN if violated else "none"
            axes.barh([*bars], [*bars.values()], height=0.35, facecolor=face, edgecolor=PROVEN, label=words)
    axes.plot([*claimed.values()], [*claimed], "|", color=CLAIM, markersize=11, markeredgewidth=1.6, label="claimed")
    if most:
        axes.plot([*most.values()], [*most], "D", color=CEILING, fillstyle="none", label="ceiling")
    deltas = sorted({record.report_delta for record in records})
    at = f" at delta {deltas[0]:g}" if len(deltas) == 1 else ""
    axes.set(xlabel=f"epsilon{at}", ylim=(-0.6, len(records) - 0.4))
    axes.set_xlim(left=0.0)


def _two_lines(name: str) -> list[str]:
    """A name on two lines at most; a longer one loses its middle, as names of a grid differ at their ends."""
    plain = visible(name)
    lines = textwrap.wrap(plain, NAME_WIDTH)
    return lines if len(lines) <= 2 else [f"{plain[: NAME_WIDTH - 4].rstrip()} ...", plain[-NAME_WIDTH:].lstrip()]


@contextlib.contextmanager
def drawn(path: Path, *, width: float, height: float, columns: int = 1) -> Iterator[Any]:
    """Axes in our style, saved when the block ends."""
    import matplotlib
    from matplotlib.figure import Figure

    # not through pyplot: its backend, in a notebook, is the user's
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure.subplots(1, columns)
        dated = path.suffix in (".svg", ".pdf")
        key = {"Date": None} if path.suffix == ".svg" else {"CreationDate": None}
        save(figure, path, dpi=300, metadata=key if dated else None)


def save(figure: Any, path: Path, *, dpi: int, metadata: dict[str, None] | None = None) -> None:
    """Write a figure in one step; errors of LaTeX (.pgf) are reported in one line."""
    from matplotlib.backends.backend_pgf import LatexError

    try:
        with replacing(path) as waiting:
            figure.savefig(waiting, format=path.suffix[1:], dpi=dpi, metadata=metadata)
    except LatexError as error:
        what = next((line for line in str(error).splitlines() if line.startswith("!")), str(error).partition("\n")[0])
        raise RuntimeError(
            f"{path}: LaTeX could not typeset this figure ({what}); choose .pdf, .svg or .png."
        ) from error


def label(words: Any, path: Path) -> str:
    """A record's words for a figure: matplotlib reads mathematics between dollars, and LaTeX (.pgf) much more."""
    plain = visible(str(words))
    return latex_text(plain) if path.suffix == ".pgf" else plain.replace("$", r"\$")


def _legend(axes: Any, *, title: str | None = None, path: Path | None = None) -> None:
    """One legend for the whole figure, which it makes taller, in as many columns as fit; names escaped for the format.

    Without ``path`` they are spelled already.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = axes.figure
    width, height = figure.get_size_inches()
    handles, labels = axes.get_legend_handles_labels()
    spelled = [words if path is None else label(words, path) for words in labels]
    # 0.4 inches are the sample of a line and the margins
    lines = ["\n".join(textwrap.wrap(words, max(8, int(LETTERS * (width - 0.4))))) for words in spelled]
    style = {
        "frameon": False,
        "handlelength": 2.2,
        "columnspacing": 1.0,
        "labelspacing": 0.3,
        "title": title,
        "title_fontsize": 7,
    }
    renderer, taller = FigureCanvasAgg(figure).get_renderer(), 0.0
    for columns in range(min(MOST_COLUMNS, len(lines)), 0, -1):
        legend = figure.legend(handles, lines, ncols=columns, loc="outside lower center", **style)
        size = legend.get_window_extent(renderer)
        taller = size.height / figure.dpi
        if size.width <= figure.bbox.width or columns == 1:
            break
        legend.remove()
    figure.set_size_inches(width, height + taller)


@checked
def draw(record: AuditRecord, axes: Any, *, logarithmic: bool = False) -> None:
    """Draw a record's trade-off curves on axes of matplotlib: claimed, exact where known, observed, proven, ceiling.

    The observed curve is a count and proves nothing: only what is labelled "proven" holds at the record's risk.

    Args:
      record: a record with a curve: one of ``audit.run_audit`` whose trials were drawn (``record.drawn``).
      axes: axes of matplotlib; add a legend yourself.
      logarithmic: whether both axes are logarithmic, where the points that drive epsilon are seen.

    Raises:
      ValueError: ``record`` is not an AuditRecord.

    Examples:
      >>> import audit, distinguishers, guarantees, jax, mechanisms
      >>> import matplotlib.figure
      >>> step, pair = mechanisms.gaussian_mechanism(noise_multiplier=1.0), mechanisms.scalar_pair()
      >>> given = dict(claim=guarantees.gaussian(mu=1.0), trials=1000, risk=0.05, key=jax.random.key(0))
      >>> record = audit.run_audit(step, pair, distinguishers.likelihood_ratio(step, pair), **given, diagnose=False)
      >>> axes = matplotlib.figure.Figure().subplots()  # or matplotlib.pyplot.subplots()
      >>> audit.draw(record, axes)
      >>> sorted(axes.get_legend_handles_labels()[1])
      ['ceiling', 'claimed', 'exact', 'observed', 'proven', 'proven band']
    """
    curve, most = record.claim.curve, ceiling(record)
    axes.plot(curve.alpha, curve.beta, color=CLAIM, label="claimed", linewidth=1.6)
    if record.theory is not None:
        axes.plot(record.theory.alpha, record.theory.beta, color=EXACT, linestyle="--", label="exact")
    _draw_observed(record, axes)
    if record.band.alpha:
        axes.plot(*falling(record), color=PROVEN, linewidth=0.7, label="proven band")
    if 0 < len(record.points) <= 12:
        points = [(point.alpha_upper, point.beta_upper) for point in record.points if point.limited]
        if points:
            axes.plot(*zip(*points, strict=True), "o", color=PROVEN, label="proven", zorder=5)
    if most is not None:
        # hollow: where hardly any error was made it lies upon the proven points
        open_one = {"fillstyle": "none", "markersize": 6}
        axes.plot(most.point.alpha, most.point.beta, "D", color=CEILING, label="ceiling", **open_one)
    # a curve along both axes is to be seen
    axes.set(xlim=(-0.03, 1.01), ylim=(-0.03, 1.01), xlabel="false-alarm rate", ylabel="miss rate")
    if logarithmic:
        _logarithmic(axes, record)


def _draw_observed(record: AuditRecord, axes: Any) -> None:
    """Draw observed curves: those of scores that tests used in black and by name, all others grey under one name."""
    judged = {point.member for point in record.points}
    several = len(record.grids) > 1
    front = [grid for grid in record.grids if grid.member in judged or not several]
    behind = [grid for grid in record.grids if grid not in front]
    for number, grid in enumerate(behind):
        name = "_" if number else "other scores"
        axes.plot(*observed(grid), color=OTHERS, linewidth=0.7, zorder=1.5, label=name)
    for grid, dashes in zip(front, itertools.cycle(DASHES)):
        name = grid.member.replace("_", " ") if several else "observed"
        axes.plot(*observed(grid), color=OBSERVED, linestyle=dashes, linewidth=1.1, zorder=4, label=name)


def _logarithmic(axes: Any, record: AuditRecord) -> None:
    seen = [x for p in record.points for x in (p.alpha_upper, p.beta_upper) if x > 0]
    low = max(SMALLEST, 10.0 ** np.floor(np.log10(min([0.01, *seen]))))
    axes.set(xscale="log", yscale="log", xlim=(low, 1.2), ylim=(low, 1.2))


def save_claims(claims: Sequence[Claim], path: Path) -> None:
    """Save the trade-off curves of several claims in one figure; the file's ending decides the format."""
    alpha = np.concatenate([tail := np.logspace(-6, np.log10(0.5), 120), 1 - tail[-2::-1]])
    with drawn(path, width=5.0, height=4.6) as axes:
        axes.plot([0, 1], [1, 0], color="#cccccc", linewidth=0.8, linestyle=":", label="random guessing")
        for claim in claims:
            axes.plot(alpha, claim.beta(alpha), label=label(claim.describe(), path))
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal", xlabel="false-alarm rate", ylabel="miss rate")
        _legend(axes)


def in_sweep(records: Sequence[AuditRecord], *, x: str, series: str | None) -> list[AuditRecord]:
    """The audits that ran and have these parameters; a ValueError lists what there is if none has them."""
    ran = [record for record in records if record.ran]
    require("records", len(ran) > 0, "of an audit that ran", "none")
    names = [x] if series is None else [x, series]
    found = [record for record in ran if all(name in _parameters(record) for name in names)]
    if not found:
        # the first says what it has instead
        for name in names:
            value_of(ran[0], name)
    return found


def save_sweep(records: Sequence[AuditRecord], path: Path, *, x: str, series: str | None, y: str, width: float) -> None:
    """Save a figure of a proven number against a parameter, a line per value of another, beside exact values."""
    require("plot", path.suffix[1:] in FIGURES, f"a file ending in one of {FIGURES}", path.name)
    records = in_sweep(records, x=x, series=series)
    rows = [(value_of(record, x), None if series is None else value_of(record, series), record) for record in records]
    groups: dict[Any, list[tuple[Any, AuditRecord]]] = {}
    for place, group, record in rows:
        groups.setdefault(group, []).append((place, record))
    with drawn(path, width=width, height=0.7 * width) as axes:
        for number, (group, members) in enumerate(sorted(groups.items(), key=lambda item: str(item[0]))):
            members.sort(key=lambda item: item[0])
            places = [label(place, path) if isinstance(place, str) else place for place, _ in members]
            colour, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
            name = "proven" if group is None else label(group, path)
            axes.plot(places, [_proven(r, y) for _, r in members], f"{marker}-", color=colour, label=name)
            _beside(axes, places, [r for _, r in members], y=y, colour=colour, named=number == 0)
        # an exact epsilon may be a hundred times what any trials prove: it leaves the picture, not the rest its scale
        shown = [_proven(r, y) for r in records] + [_claimed(r, y) for r in records]
        shown += [found for r in records if y == "epsilon" and (found := most_epsilon(r))]
        top = 1.1 * max([value for value in shown if np.isfinite(value)], default=1.0)
        axes.set(xlabel=label(x, path), ylabel=y, ylim=(-0.02 * top, top or 1.0))
        _legend(axes, title=None if series is None else label(series, path))


def sweep_numbers(records: Sequence[AuditRecord], *, x: str, series: str | None, y: str) -> list[dict[str, Any]]:
    """The numbers that ``save_sweep`` draws, one row per audit; an epsilon has its delta beside it."""
    rows = []
    for record in in_sweep(records, x=x, series=series):
        most = most_epsilon(record) if y == "epsilon" else None
        claimed = _claimed(record, y)
        rows.append(
            {
                "audit": record.name,
                x: value_of(record, x),
                **({} if series is None else {series: value_of(record, series)}),
                "proven": _proven(record, y),
                "claimed": claimed if np.isfinite(claimed) else None,
                "exact": record.exact_epsilon if y == "epsilon" else None,
                "ceiling": most,
                **({"delta": record.report_delta} if y == "epsilon" else {}),
            }
        )
    return rows


def _beside(axes: Any, places: list[Any], records: list[AuditRecord], *, y: str, colour: str, named: bool) -> None:
    """Draw, thinner, what is claimed, what is exact and the most that the trials could prove."""
    claimed = [_claimed(r, y) for r in records]
    axes.plot(places, claimed, color=colour, linewidth=0.7, linestyle=":", label="claimed" if named else None)
    if y != "epsilon":
        return
    exact = [np.nan if r.exact_epsilon is None else r.exact_epsilon for r in records]
    if np.isfinite(exact).any():
        axes.plot(places, exact, color=colour, linewidth=0.7, linestyle="--", label="exact" if named else None)
    most = [found if (found := most_epsilon(r)) else np.nan for r in records]
    if np.isfinite(most).any():
        axes.plot(places, most, color="#999999", linewidth=0.7, label="ceiling of the trials" if named else None)


def _claimed(record: AuditRecord, y: str) -> float:
    known = np.nan if record.claim.epsilon is None else record.claim.epsilon
    return {"epsilon": known, "delta": record.claim.advantage}.get(y, np.nan)


def _proven(record: AuditRecord, y: str) -> float:
    if y == "epsilon":
        return record.epsilon(record.report_delta)
    return record.delta(0.0) if y == "delta" else record.mu


def value_of(record: AuditRecord, name: str) -> Any:
    """A parameter of the audit: of its mechanism, pair, claim or score, or one of the record's own numbers."""
    known = _parameters(record)
    if name in known:
        return known[name]
    raise ValueError(f"audit {record.name!r} has no parameter {name!r}; it has {', '.join(sorted(known))}.")


def _parameters(record: AuditRecord) -> dict[str, Any]:
    of_record = {"trials": record.trials, "risk": record.risk, "audit": record.name}
    parts = (record.distinguisher, record.claim, record.neighbours, record.mechanism)
    found = {key: value for part in parts for key, value in part.parameters.items()} | of_record
    return {key: value for key, value in found.items() if not isinstance(value, dict | list)}
