"""Every test, the long ones too, in parts that may be interrupted: python tools/full_tests.py [--shard 3/14].

`make test-full` starts it. Folder after folder is run, so that memory is given back in between. What has passed is kept
in .pytest_cache/full/, for the commit and what is changed on top of it, and the next call goes on from there; a shard's
ledger made on another machine counts when its file is copied into that folder.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools import ledger

ROOT = Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-p", "tools.ledger", "-p", "no:cacheprovider"]


def version() -> str:
    """The commit, and a number for what differs from it."""
    commit, changes = (
        subprocess.run(["git", *asked], cwd=ROOT, check=True, capture_output=True).stdout
        for asked in (["rev-parse", "HEAD"], ["diff", "HEAD"])
    )
    return commit.decode()[:12] + (f"-{hashlib.sha256(changes).hexdigest()[:8]}" if changes else "")


def dealt(tests: list[tuple[str, str]], shard: int, shards: int) -> list[str]:
    """Names of one shard's tests: fast ones by files, whose tests share what they compile, long ones one by one."""
    files = {name.split("::")[0]: None for kind, name in tests if kind == "fast"}
    mine = set(list(files)[shard - 1 :: shards])
    long = [name for kind, name in tests if kind == "long"][shard - 1 :: shards]
    return [name for kind, name in tests if kind == "fast" and name.split("::")[0] in mine] + long


def names_of_all(folder: Path) -> list[tuple[str, str]]:
    """(fast or long, name) of every test: collected once."""
    file = folder / "names.txt"
    if not file.exists():
        part = folder / "names.part"
        collect = [*PYTEST, "-q", "-q", "--collect-only", "--names", part]
        subprocess.run(collect, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        part.rename(file)
    return [(kind, name) for kind, name in (line.split("\t", 1) for line in file.read_text().splitlines())]


def run(names: list[str], lines: Path, *, workers: int) -> bool:
    """Whether all of these tests, in one folder, had their turn."""
    listed = lines.with_suffix(".listed")
    listed.write_text("\n".join(names) + "\n")
    files = list(dict.fromkeys(name.split("::")[0] for name in names))
    # what XLA makes of a program by its own defaults, unlike in the fast tests
    environment = {**os.environ, "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    parallel = ["-n", str(workers), "--dist", "worksteal"] if min(workers, len(names)) > 1 else []
    asked = [*PYTEST, "-q", *parallel, "--ledger", lines, "--listed", listed, *files]
    child = subprocess.Popen(asked, cwd=ROOT, env=environment)
    try:
        return child.wait() in (0, 1)
    except KeyboardInterrupt:
        child.wait()
        return False


def main() -> int:
    """Run what is left of a shard and say where it stands."""
    parser = argparse.ArgumentParser(description="Every test, the long ones too.")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="the I-th of N parts (default: all in one)")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time (default: 2)")
    asked = parser.parse_args()
    shard, shards = map(int, asked.shard.split("/"))
    if not 1 <= shard <= shards:
        parser.error(f"--shard I/N takes I from 1 to N, got {asked.shard}.")
    folder = ROOT / ".pytest_cache" / "full" / version()
    folder.mkdir(parents=True, exist_ok=True)
    mine = dealt(names_of_all(folder), shard, shards)
    known = ledger.read(folder.glob("*.tsv"))
    left = defaultdict(list)
    for name in mine:
        if known.get(name, ("",))[0] not in ledger.FINISHED:
            left[Path(name.split("::")[0]).parent].append(name)
    print(f"{folder.name}, shard {asked.shard}: {sum(map(len, left.values()))} of {len(mine)} tests to run")
    for part, names in left.items():
        print(f"{part}: {len(names)} tests", flush=True)
        if not run(names, folder / f"{shard}-of-{shards}.tsv", workers=asked.workers):
            break
    known = ledger.read(folder.glob("*.tsv"))
    came = {name: known.get(name, ("never ran", 0.0)) for name in mine}
    number = Counter(outcome for outcome, _ in came.values())
    failed = [name for name, (outcome, _) in came.items() if outcome == "failed"]
    for name in failed:
        print(f"failed: {name}")
    minutes = sum(seconds for _, seconds in came.values()) / 60
    parts = ", ".join(f"{number[outcome]} {outcome}" for outcome in ("passed", "skipped", "failed", "never ran"))
    print(f"{folder.name}, shard {asked.shard}: {parts}; {minutes:.1f} CPU minutes")
    return int(bool(failed) or number["never ran"] > 0)


if __name__ == "__main__":
    sys.exit(main())
