"""Every comparison of this folder in one run, in its quick form: one table, as Markdown and JSON, and the growth plot.

    python benchmarks/bench.py [numpy auditors scores algorithm_one curves trainings everyday growth] [zoo]

What `make bench` runs: about five minutes on two idle cores. `zoo` takes longer and is run where it is named. A
ratio is their cost over ours on the same job in this run: above 1 we are faster. Costs are processor seconds
(`throughput.py` alone compares wall time, both sides in all threads); the load of the machine is written beside them.
Peers live in an environment of their own (`peers.py`); one that cannot be installed is a row that says why.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import peers

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
Table = list[dict[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One tool on one job."""

    job: str
    tool: str
    result: str = ""
    cost: float | None = None
    unit: str = "CPU s"
    ratio: float | None = None
    """Their cost over ours."""


def tables(text: str) -> Table:
    """The rows of a Markdown table, by the names of its columns."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def number(text: str) -> float | None:
    """Of a cell; None of an empty one."""
    return float(text.replace(",", "")) if text.strip() else None


def over(theirs: float | None, ours: float | None) -> float | None:
    return None if theirs is None or not ours else theirs / ours


def numpy_rows(found: Table) -> Iterator[Row]:
    for row in found:
        job = f"vectors of {row['dimension']}: draw, score ({row['score']}), count; theirs: draw and sum squares"
        yield Row(job=job, tool="dpsgd-audit", cost=number(row["trials/s"]), unit="trials/s")
        for column, tool in (("/ NumPy", "NumPy SFC64"), ("/ jax.random.normal", "jax.random.normal")):
            yield Row(job=job, tool=tool, unit="trials/s", ratio=number(row[column]))


def auditor_rows(found: Table) -> Iterator[Row]:
    ours = number(found[0]["CPU s"])
    for row in found:
        cost = number(row["CPU s"])
        ratio = None if row is found[0] else over(cost, ours)
        yield Row(job="N(1,1) against N(0,1)", tool=row["auditor"], result=row["epsilon >="], cost=cost, ratio=ratio)


def score_rows(found: Table) -> Iterator[Row]:
    for row in found:
        job = f"bound from {row['scores without']} scores without and 2e6 with, mu {row['mu']}, delta .1, risk .2"
        theirs, ours = (number(part) for part in row["CPU s, theirs (Split) / ours"].split("/"))
        yield Row(job=job, tool="dpsgd-audit", result=row["ours"], cost=ours)
        yield Row(job=job, tool="jax_privacy, Split", result=row["Split"], cost=theirs, ratio=over(theirs, ours))


def everyday_rows(found: Table) -> Iterator[Row]:
    for row in found:
        job, cost = row.values()
        yield Row(job=job, tool="dpsgd-audit", cost=number(cost), unit="s" if job.endswith("wall") else "CPU s")


def algorithm_one_rows(found: Table) -> Iterator[Row]:
    for row in found:
        job = f"Algorithm 1, N 4, n {row['dimension']}, {row['trials']} trials, {row['test']}"
        compiled = f"compilation {row['compile, CPU s']} s apart"
        yield Row(job=job, tool="dpsgd-audit", result=compiled, cost=number(row["CPU s"]))
        if row["ratio"]:
            theirs = number(row["SciPy's loop, scaled, CPU s"])
            yield Row(job=job, tool="loop over SciPy, scaled", cost=theirs, ratio=number(row["ratio"]))


def curve_rows(found: Table) -> Iterator[Row]:
    job, ours = "", None
    for row in found:
        cost, peer = number(row["CPU s"]), row["job"].removeprefix("the same by ")
        own = peer in (row["job"], "our certified composition")
        job, ours = (row["job"] if peer == row["job"] else job), (cost if own else ours)
        tool = peer if not own else "dpsgd-audit" if peer == row["job"] else "dpsgd-audit, certified composition"
        yield Row(job=job, tool=tool, result=row["result"], cost=cost, ratio=None if own else over(cost, ours))


def training_rows(found: Table) -> Iterator[Row]:
    for row in found:
        job, result = f"shuffled training, T {row['T']}, {row['trials']} trials", f"{row['G rounds/s']} G rounds/s"
        yield Row(job=job, tool="dpsgd-audit", result=result, cost=number(row["second, s"]), unit="s")


def growth_rows(found: Table) -> Iterator[Row]:
    for row in found:
        job, cost = f"{row['outputs']}, {row['grows']} {row['to']}", number(row["CPU microseconds a trial"])
        yield Row(job=job, tool="dpsgd-audit", cost=cost, unit="CPU us a trial")


def zoo_rows(found: Table) -> Iterator[Row]:
    ours = number(found[0]["CPU s an audit"])
    for row in found:
        cost, accused = number(row["CPU s an audit"]), row["right twins accused"]
        result = row["bugs found"] + (f" found, {accused} right ones accused" if accused else "")
        ratio = None if row is found[0] else over(cost, ours)
        yield Row(
            job="bugs of the zoo, 1,000 outputs per side", tool=row["tool"], result=result, cost=cost, ratio=ratio
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A script in its quick form, and how its table is read."""

    script: str
    arguments: tuple[str, ...]
    rows: Callable[[Table], Iterator[Row]]
    peers: bool = False
    """Whether it runs in the peers' environment, both sides in one process."""
    named: bool = False
    """Whether it is run only where it is named."""


def sections(out: Path) -> dict[str, Section]:
    numpy = ("--seconds", "0.5", "--dimensions", "100", "26010")
    auditors = ("--per-side", "1000000", "--python", str(peers.PYTHON))
    loop = ("--trials", "10000", "100", "--loop", "1")
    growth = ("--seconds", "0.2", "--figure", str(out / "growth.svg"))
    zoo = ("--per-side", "1000", "--repetitions", "1", "--python", str(peers.PYTHON))
    return {
        "numpy": Section(script="throughput.py", arguments=numpy, rows=numpy_rows),
        "auditors": Section(script="peer_scores.py", arguments=auditors, rows=auditor_rows),
        "scores": Section(script="bounds.py", arguments=("--peer", "--quick"), rows=score_rows, peers=True),
        "algorithm_one": Section(script="algorithm_one.py", arguments=loop, rows=algorithm_one_rows),
        "curves": Section(script="curves.py", arguments=("--bins", "20"), rows=curve_rows, peers=True),
        "trainings": Section(script="rounds.py", arguments=("speed", "--trials", "100000"), rows=training_rows),
        "everyday": Section(script="everyday.py", arguments=(), rows=everyday_rows),
        "growth": Section(script="growth.py", arguments=growth, rows=growth_rows),
        "zoo": Section(script="power_peers.py", arguments=zoo, rows=zoo_rows, named=True),
    }


def measured(section: Section) -> list[Row]:
    """The section's rows; one that says why, where its script failed."""
    python = str(peers.PYTHON) if section.peers else sys.executable
    words = [python, str(HERE / section.script), *section.arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["failed"])[-1]
        return [Row(job=section.script, tool="dpsgd-audit", result=f"failed: {why}")]
    return list(section.rows(tables(done.stdout)))


def shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def markdown(found: dict[str, list[Row]], facts: dict[str, object]) -> str:
    lines = ["# Benchmarks", "", ", ".join(f"{name} {value}" for name, value in facts.items()), ""]
    lines += ["| job | tool | result | cost | unit | theirs / ours |", "|---|---|---|---|---|---|"]
    for row in (row for rows in found.values() for row in rows):
        cost, ratio = shown(row.cost), shown(row.ratio)
        lines.append(f"| {row.job} | {row.tool} | {row.result} | {cost} | {row.unit} | {ratio} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", help="(default: all but zoo)")
    parser.add_argument("--out", type=Path, default=Path("bench-report"))
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    known = sections(out)
    wanted = arguments.sections or [name for name, section in known.items() if not section.named]
    if unknown := set(wanted) - set(known):
        parser.error(f"sections must be among {', '.join(known)}, got {', '.join(sorted(unknown))}.")
    began, loads, text = time.monotonic(), [os.getloadavg()[0]], ""
    missing = peers.install() if {"auditors", "scores", "curves", "zoo"} & set(wanted) else {}
    found = {"peers": [Row(job="install", tool=name, result=f"not installed: {why}") for name, why in missing.items()]}
    for name in wanted:
        print(f"{name} ({known[name].script}) ...", flush=True)
        found[name] = measured(known[name])
        loads.append(os.getloadavg()[0])
        text = written(out, found, loads, time.monotonic() - began)
    print(text)
    print(f"Written: {out / 'table.md'}, {out / 'table.json'}" + (f", {out / 'growth.svg'}" * ("growth" in wanted)))


def written(out: Path, found: dict[str, list[Row]], loads: list[float], seconds: float) -> str:
    """Both files, after every section: a run that is stopped leaves what it measured."""
    facts = {
        "date": datetime.date.today().isoformat(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": f"{min(loads):.1f} to {max(loads):.1f}",
        "seconds": round(seconds),
    }
    text = markdown(found, facts)
    (out / "table.md").write_text(text, encoding="utf-8")
    record = {"facts": facts, "rows": [dataclasses.asdict(row) for rows in found.values() for row in rows]}
    (out / "table.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return text


if __name__ == "__main__":
    main()
