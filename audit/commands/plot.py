"""dpsgd-audit plot: a sweep of audits as one figure."""

from __future__ import annotations

import argparse
from pathlib import Path

from audit.commands.json_output import print_json
from audit.record.files import require_apart
from audit.record.record import plain
from audit.record.stored import WRITTEN_BY, load_records
from audit.report.figures import in_sweep, save_sweep, sweep_numbers, width_in_inches


def execute(arguments: argparse.Namespace) -> int:
    """Draw a proven number against a parameter of the audits."""
    path = Path(arguments.records)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; {WRITTEN_BY}.")
    out, records = Path(arguments.out), load_records(path)
    require_apart({"--out": out}, {"the records": path})
    what = {"x": arguments.x, "series": arguments.series, "y": arguments.y}
    save_sweep(records, out, **what, width=width_in_inches(arguments.width))
    drawn = in_sweep(records, x=arguments.x, series=arguments.series)
    left_out = [record.name for record in records if record not in drawn]
    if arguments.json:
        points = sweep_numbers(records, **what)
        print_json(plain({"written": [str(out)], **what, "points": points, "left_out": left_out}))
    elif not arguments.quiet:
        print(out)
        if left_out:
            print(f"Left out, since they did not run or have no such parameter: {', '.join(map(repr, left_out))}.")
    return 0
