"""The long attack: ``python -m attack.run --draws 4000 --shard 0/8 --out attack``, from the folder ``tests``.

``--what composed`` draws constructors composed with themselves, ``--what mixed`` two or three different ones
composed, ``--what numbers`` functions that make no curve,
``--what large`` epsilons beyond 600, laws with atoms and noise of .01 to .05.

Draw i belongs to shard ``i mod shards`` and depends on i alone, so shards may run anywhere and be repeated. Each
draw is one line of ``OUT/shard-K.jsonl``; a shard that is started again goes on behind its last line. The exit status
is 1 where any draw is a fault.

It ends: a constructor takes two to three CPU seconds on average, a composition six to ten (single ones two minutes),
so 4,000 constructors take about three CPU hours, in eight shards 25 minutes, and 600 compositions an hour and a half.
``--seconds`` ends a shard earlier; started again it goes on. What was drawn last: docs/validity.md, section 10.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np

from attack.draws import COMPOSED, SPACES, Space
from attack.large import LARGE_LOSSES
from attack.mixed import MIXED
from attack.numbers import NUMBERS, Number
from attack.oracles import disagreements
from attack.properties import faults


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """What may be drawn, and what sets its random numbers apart."""

    spaces: list[Space] | list[Number]
    stream: tuple[int, ...] = ()


KINDS = {
    "constructors": Kind(spaces=SPACES),
    "composed": Kind(spaces=COMPOSED, stream=(1,)),
    "numbers": Kind(spaces=NUMBERS, stream=(2,)),
    "large": Kind(spaces=LARGE_LOSSES, stream=(3,)),
    "mixed": Kind(spaces=MIXED, stream=(4,)),
}
SLOW = 5.0
"""CPU seconds from which a draw is listed as slow."""


def drawn(index: int, what: str = "constructors") -> tuple[Space | Number, dict[str, Any]]:
    """What is attacked, and with which parameters, in one draw."""
    rng = np.random.default_rng([20_261_115, index, *KINDS[what].stream])
    spaces = KINDS[what].spaces
    space = spaces[int(rng.integers(len(spaces)))]
    return space, space.draw(rng.random(len(space.parameters)).tolist())


def attacked(index: int, what: str = "constructors") -> dict[str, Any]:
    """One draw: its parameters, verdict and cost."""
    space, given = drawn(index, what)
    rng = np.random.default_rng([20_261_116, index, *KINDS[what].stream])
    found: dict[str, Any] = {"index": index, "name": space.name, "given": given, "judged": 0}
    start = time.process_time()
    try:
        if isinstance(space, Number):
            found["judged"], wrong = space.check(given, rng)
        else:
            claim = space.make(given)
            wrong = faults(claim)
            found["seconds"] = round(time.process_time() - start, 3)
            found["error"] = claim.error
            found["judged"], differing = disagreements(space.name, given, claim, rng)
            wrong += differing
        found |= {"verdict": "fault" if wrong else "right", "why": wrong}
    except (ValueError, ArithmeticError) as refusal:
        found |= {"verdict": "refused", "why": [f"{type(refusal).__name__}: {refusal}"]}
    except Exception as crash:
        found |= {"verdict": "fault", "why": [f"{type(crash).__name__}: {crash}"]}
    found.setdefault("seconds", round(time.process_time() - start, 3))
    return found


def run(
    draws: int, shard: int, shards: int, folder: pathlib.Path, seconds: float, what: str = "constructors"
) -> list[dict[str, Any]]:
    """What is left of one shard, appended to its file; the time limit is looked at between draws."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"shard-{shard}.jsonl"
    kept = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done, start = {line["index"] for line in kept}, time.process_time()
    with path.open("a") as out:
        for index in range(shard, draws, shards):
            if index in done:
                continue
            if time.process_time() - start > seconds:
                break
            line = attacked(index, what)
            kept.append(line)
            out.write(json.dumps(line, default=float) + "\n")
            out.flush()
    return kept


def report(lines: list[dict[str, Any]]) -> str:
    """Verdicts by constructor, how many had no judge, and every fault, refusal and slow draw."""
    counts = Counter((line["name"], line["verdict"]) for line in lines)
    text = [f"{len(lines)} draws: {dict(Counter(line['verdict'] for line in lines))}"]
    text += [f"{name:22s} {verdict:8s} {number}" for (name, verdict), number in sorted(counts.items())]
    alone = Counter(line["name"] for line in lines if line["verdict"] == "right" and not line["judged"])
    text.append(f"right by their own rules only, no oracle: {sum(alone.values())} {dict(alone)}")
    for line in lines:
        if line["verdict"] != "right" or line["seconds"] > SLOW:
            text.append(f"{line['verdict']} {line['name']}({line['given']}) {line['seconds']} s: {line['why']}")
    return "\n".join(text)


def main() -> int:
    """Run one shard and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--shard", default="0/1", help="which one of how many, as 0/8")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("attack-out"))
    parser.add_argument("--seconds", type=float, default=np.inf, help="CPU seconds after which no draw is begun")
    parser.add_argument("--what", choices=list(KINDS), default="constructors")
    given = parser.parse_args()
    shard, shards = (int(part) for part in given.shard.split("/"))
    warnings.simplefilter("error")
    lines = run(given.draws, shard, shards, given.out, given.seconds, given.what)
    print(report(lines))
    return int(any(line["verdict"] == "fault" for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
