"""dpsgd-audit plot: a sweep of audits as one figure."""

from __future__ import annotations

import argparse
from pathlib import Path

from audit.record.record import load_records
from audit.report.figures import save_sweep, width_in_inches


def execute(arguments: argparse.Namespace) -> int:
    """Draw a proven number against a parameter of the audits."""
    path = Path(arguments.records)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; records are written by `dpsgd-audit run`.")
    out = Path(arguments.out)
    save_sweep(
        load_records(path),
        out,
        x=arguments.x,
        series=arguments.series,
        y=arguments.y,
        width=width_in_inches(arguments.width),
    )
    print(out)
    return 0
