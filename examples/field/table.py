"""The tables of docs/field.md from the records of suites/field.toml.

python examples/field/table.py field-report/records.json [--write docs/field.md]
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from audit.record.record import AuditRecord
from audit.record.stored import load_records
from audit.report.diagnoses import looks_wrong
from audit.report.escaping import markdown_text
from audit.report.table import readable, readable_p_value
from guarantees.numerics.rounding import at_least

ENTRIES = Path(__file__).with_name("entries.toml")
BEGIN, END = "<!-- made by examples/field/table.py -->", "<!-- end -->"
RESULTS = (
    "audit",
    "verdict",
    "delta at 0: proven (allowed)",
    "epsilon: proven (allowed)",
    "p",
    "trials",
    "judged by",
    "diagnosis",
)
FACTS = (
    ("version", "version"),
    ("promise", "its promise"),
    ("relation", "stated relation"),
    ("divisor", "divisor"),
    ("pair", "pair"),
    ("side", "in its defence"),
    ("public", "public"),
)


def entries() -> Mapping[str, Mapping[str, str]]:
    """What is known of each library beside the records."""
    return tomllib.loads(ENTRIES.read_text(encoding="utf-8"))


def library(record: AuditRecord) -> str:
    """The library of an audit: its name begins with it."""
    return record.name.partition(":")[0]


def tables(records: tuple[AuditRecord, ...]) -> str:
    """Results, and then what was judged."""
    known = entries()
    risk = sum(record.risk for record in records)
    lines = [f"| {' | '.join(RESULTS)} |", "|" + "---|" * len(RESULTS)]
    lines += [f"| {' | '.join(_result(record))} |" for record in records]
    lines += [
        "",
        f"All bounds and verdicts hold together at risk {risk:.3g}; epsilon at the delta of the claim, or 1e-5.",
    ]
    for name in dict.fromkeys(map(library, records)):
        lines += ["", '<details markdown="1">', f"<summary>{name}</summary>", ""]
        lines += [f"- {told}: {known[name][key]}" for key, told in FACTS if key in known[name]]
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _result(record: AuditRecord) -> list[str]:
    name, claim = markdown_text(record.name), f"`{_short(record.claim.describe())}`"
    if not record.ran:
        return [name, "could not run", "–", "–", "–", "0", claim, markdown_text(record.reason)]
    verdict = readable(record.verdict)
    return [
        name,
        f"**{verdict}**" if record.verdict == "violation" else verdict,
        f"{at_least(record.delta(0.0), '.3f')} ({record.claim.advantage:.3g})",
        f"{at_least(record.epsilon(record.report_delta), '.2f')} ({record.claim.epsilon:.3g})",
        readable_p_value(record.p_value),
        f"{record.trials:,}",
        claim,
        markdown_text(_brief(" ".join(looks_wrong(record.diagnoses)[:1]))) or "–",
    ]


def _brief(diagnosis: str) -> str:
    """What was seen, without its interval and without what follows from it: the record has both."""
    seen, _, follows = re.sub(r" \([^()]*\)", "", diagnosis).rpartition(": ")
    return seen or follows


def _short(claim: str) -> str:
    """With four digits of long numbers: the suite has all of them."""
    return re.sub(r"\d\.\d{5,}", lambda number: f"{float(number[0]):.4g}", claim)


def main() -> None:
    """Print the tables, or put them between the marks of a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records")
    parser.add_argument("--write", metavar="PAGE")
    arguments = parser.parse_args()
    text = tables(load_records(arguments.records))
    if arguments.write is None:
        print(text, end="")
        return
    page = Path(arguments.write)
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
