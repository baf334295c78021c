"""The table and the figure of docs/systems.md, from the records of its suite.

dpsgd-audit run suites/systems.toml --allow-install

python benchmarks/systems.py audit-report/records.json [--figure docs/systems.svg]
"""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from pathlib import Path
from typing import Any

import audit
from audit.record.record import AuditRecord
from audit.record.stored import load_records
from audit.report.figures import drawn
from guarantees.numerics.rounding import at_least

SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
DIVISORS = {
    "realised_batch": "batch size",
    "expected_batch": "N q",
    "floored_expected_batch": "floor(N q)",
}
HEADER = (
    "system",
    "library",
    "divisor",
    "parameters",
    "images",
    "records",
    "q",
    "trials",
    "epsilon at 1e-5 (claimed)",
    "delta at 0 (claimed)",
    "seconds",
)


def supposed(record: AuditRecord) -> Any:
    """The model that the distinguisher supposes."""
    return record.distinguisher.parameters["mechanism"]


def library(record: AuditRecord) -> str:
    version = record.mechanism.parameters.get("version")
    return f"Opacus {version}" if version else "its own, rewritten in Flax"


def system(record: AuditRecord) -> str:
    return record.name.partition(" source=")[0].partition(":")[0]


def row(record: AuditRecord) -> tuple[str, ...]:
    records = record.neighbours.parameters["records"]
    return (
        system(record),
        library(record),
        DIVISORS[supposed(record)["normalise_by"]],
        f"{record.distinguisher.parameters['neighbours']['dimension']:,}",
        SETS[record.neighbours.parameters["source"]],
        f"{records} / {records + 1}",
        f"{record.claim.parameters['rate']:g}",
        f"{record.trials:,}",
        f"{at_least(record.epsilon(record.report_delta), '.3f')} ({record.claim.epsilon:.3g})",
        f"{at_least(record.delta(0.0), '.4f')} ({record.claim.advantage:.3g})",
        f"{record.seconds:.0f}",
    )


def panel(record: AuditRecord) -> AuditRecord:
    """The record under a name that says what is drawn."""
    rate = record.claim.parameters["rate"]
    return dataclasses.replace(record, name=f"{system(record)}: {library(record)}, q = {rate:g}")


def chosen(records: tuple[AuditRecord, ...]) -> tuple[AuditRecord, ...]:
    """One panel a system, library and rate: MNIST with the paper's number of records."""
    small = [r for r in records if r.neighbours.parameters["source"] == "mnist"]
    return tuple(r for r in small if r.neighbours.parameters["records"] < 10 and "copy" not in r.name)


def draw_panels(records: tuple[AuditRecord, ...], path: Path) -> None:
    """Small trade-off plots beside each other."""
    with drawn(path, width=2.4 * len(records), height=3.2, columns=len(records)) as panels:
        for axes, record in zip(panels, records, strict=True):
            audit.draw(record, axes)
            axes.set_title("\n".join([*textwrap.wrap(record.name, 36), record.verdict.replace("_", " ")]))
        panels[0].legend(frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--figure", help="where to draw the trade-off curves (.svg, .png)")
    arguments = parser.parse_args()
    records = load_records(arguments.records)
    for cells in (HEADER, ("---",) * len(HEADER), *(row(record) for record in records)):
        print("| " + " | ".join(cells) + " |")
    if arguments.figure:
        draw_panels(tuple(panel(record) for record in chosen(records)), Path(arguments.figure))


if __name__ == "__main__":
    main()
