"""Power beside the peers: who finds the bugs of the zoo, who accuses right mechanisms, and at what cost.

    python benchmarks/power_peers.py [--python PEERS] [--dp-auditorium PATH] [--delta-siege PATH] [--dp-recorder PATH]

Every bug of the zoo once, on its own pair, and its right twin on the same pair several times. All tools get the same
outputs, so many per side, and the risk .05, and answer one question: is the claim broken? Ours learns, chooses and
judges on these outputs, like every other. Scalar tools get two scores: the projection on the record's gradient
(the norm where that is zero), and the best score of our battery, learnt and chosen as in our own audit on
outputs that are then thrown away. dp-recorder is also asked in its own way, with access to the code
(`peer_grey_box.py`).

PEERS is a Python that has the peers (`peers.py`); three of them are in no package index and run from checkouts of their
repositories (given here or in DP_AUDITORIUM, DELTA_SIEGE and DP_RECORDER). How each is set up stands in
`peer_verdicts.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from peer_verdicts import RISK, Promise
from scipy.stats import rankdata

import audit
from audit.policies.catalogue import default_policy
from distinguishers import default_battery, norm, projection
from distinguishers.contract import Distinguisher
from distinguishers.learned.fitting import Fit
from distinguishers.model_free.directions import span_of
from guarantees import Claim
from mechanisms.contract import Draw, Mechanism
from mechanisms.pairs.neighbours import Neighbours, materialise
from mechanisms.release import flatten_rows

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from zoo.faults import Fault, zoo

HERE = Path(__file__).resolve().parent
SOURCES = ("dp_auditorium", "delta_siege", "dp_recorder")
"""Peers that are in no package index."""
ROWS = {
    "dpsgd-audit": "dpsgd-audit, default battery",
    "jax_privacy_projections_1e-05": "jax_privacy 2.0.0, projection, delta 1e-5",
    "jax_privacy_projections_0.1": "jax_privacy 2.0.0, projection, delta .1",
    "jax_privacy_best_1e-05": "jax_privacy 2.0.0, our best score, delta 1e-5",
    "jax_privacy_best_0.1": "jax_privacy 2.0.0, our best score, delta .1",
    "delta_siege_bits": "Delta-Siege, projection, its own classifier (bits)",
    "delta_siege_squares": "Delta-Siege, logistic regression on values and squares",
    "dp_recorder": "dp-recorder, distributional audit",
    "dp_recorder_grey_box": "dp-recorder, two runs, noise call instrumented",
    "dp_auditorium_hockey_stick": "dp_auditorium, hockey-stick, epsilon .1",
    "dp_auditorium_renyi": "dp_auditorium, Renyi of order 1.5",
    "dp_auditorium_histogram": "dp_auditorium, histogram of the projection, epsilon .1",
    "dp_auditorium_mmd": "dp_auditorium, MMD, epsilon .1",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One audit: outputs of a bug or of its right twin."""

    fault: Fault
    right: bool
    seed: int
    without: np.ndarray
    with_record: np.ndarray

    @property
    def name(self) -> str:
        """Of its file and in what tools print."""
        return f"{self.fault.name}.{'right' if self.right else 'wrong'}.{self.seed}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """How our audit divides its outputs, a side."""

    learnt: int
    chosen: int
    judged: int


def parts(per_side: int) -> Parts:
    """The most that can be judged when all parts and one look at an output's shape come from so many per side."""
    for judged in range(per_side, 0, -1):
        policy = default_policy(None, 2 * judged)
        chosen = policy.fit_trials // 2 if isinstance(policy, audit.Split) else 0
        learnt = Fit().fit_trials(2 * judged) // 2
        if learnt + chosen + judged < per_side:
            return Parts(learnt=learnt, chosen=chosen, judged=judged)
    raise ValueError(f"per_side must be larger, got {per_side}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What one tool said of one job."""

    job: str
    accused: bool
    seconds: float


def drawn(step: Mechanism, dataset: Any, key: jax.Array, *, runs: int, per_side: int) -> np.ndarray:
    """Shape (runs, per_side, coordinates)."""
    rows = materialise(dataset)
    draw = jax.jit(jax.vmap(lambda own: step(own, rows)))
    outputs = np.asarray(draw(jax.random.split(key, runs * per_side)), np.float32)
    return outputs.reshape(runs, per_side, -1)


def jobs(faults: list[Fault], *, repetitions: int, per_side: int) -> Iterator[Job]:
    """Every bug once and its right twin so many times."""
    for index, fault in enumerate(faults):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(2026), index), (2, 2))
        pair = fault.neighbours.without, fault.neighbours.with_record
        for right, step, runs in ((False, fault.step, 1), (True, fault.right, repetitions)):
            sides = [
                drawn(step, dataset, key, runs=runs, per_side=per_side)
                for dataset, key in zip(pair, keys[int(right)], strict=True)
            ]
            for seed, (without, with_record) in enumerate(zip(*sides, strict=True)):
                yield Job(fault=fault, right=right, seed=seed, without=without, with_record=with_record)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replayed:
    """A mechanism that hands out the outputs of a job, each once."""

    job: Job
    name: str = "replayed"

    def prepare(self, dataset: np.ndarray) -> Draw:
        """The side is known by its number of records."""
        without = len(dataset) == self.job.fault.neighbours.records_without
        rows = iter(self.job.without if without else self.job.with_record)
        return lambda seeds: np.stack([next(rows) for _ in seeds])


def ours(job: Job) -> Answer:
    began = time.process_time()
    record = audit.run_audit(
        Replayed(job=job),
        job.fault.neighbours,
        claim=job.fault.claim.symmetrise(),
        trials=2 * parts(len(job.without)).judged,
        risk=RISK,
        key=jax.random.key(job.seed),
        execution=audit.Execution(chunk=1024),
        diagnose=False,
    )
    return Answer(job=job.name, accused=record.verdict == "violation", seconds=time.process_time() - began)


@jax.jit
def scored(distinguisher: Any, key: jax.Array, outputs: np.ndarray) -> jax.Array:
    """Compiled once for all of one structure."""
    return jax.vmap(distinguisher, in_axes=(None, 0))(key, outputs)


def natural_score(neighbours: Neighbours) -> Distinguisher:
    """The projection on the record's gradient, or the norm where that gradient is zero."""
    return projection(neighbours) if np.any(span_of(neighbours)[1]) else norm(neighbours)


def best_score(job: Job, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """The member of our battery that tells most on outputs that it did not learn from, on outputs of their own."""
    part = parts(len(job.without))
    _, layout = flatten_rows(job.without, len(job.without), "vector")
    learner, first = default_battery(job.fault.neighbours), part.learnt
    battery = jax.device_put(learner.learn(key, job.without[:first], job.with_record[:first], layout))
    without, with_record = (np.asarray(scored(battery, key, side[first:])) for side in (job.without, job.with_record))
    count = part.chosen
    ranks = rankdata(np.concatenate([without[:count], with_record[:count]]), axis=0)[count:]
    area = ranks.mean(axis=0) - count - 0.5
    member = int(np.argmax(np.abs(area)))
    sign = 1.0 if area[member] >= 0 else -1.0
    return sign * without[count:, member], sign * with_record[count:, member]


def promise_of(claim: Claim) -> Promise:
    """A claim of the zoo as peers read it, the same in both directions; ours is asked about that one too."""
    told = claim.parameters
    if "rate" in told:
        return Promise(rate=told["rate"], noise_multiplier=told["noise_multiplier"])
    return Promise(rate=1.0, noise_multiplier=1 / told["mu"])


def written(job: Job, folder: Path) -> None:
    """What `peer_verdicts.py` reads."""
    promise, key = promise_of(job.fault.claim), jax.random.key(job.seed)
    along, best = jax.device_put(natural_score(job.fault.neighbours)), best_score(job, key)
    np.savez(
        folder / f"{job.name}.npz",
        rate=promise.rate,
        noise_multiplier=promise.noise_multiplier,
        sides_without=job.without,
        sides_with=job.with_record,
        projections_without=np.asarray(scored(along, key, job.without)),
        projections_with=np.asarray(scored(along, key, job.with_record)),
        best_without=best[0],
        best_with=best[1],
    )


def asked(tool: str, given: argparse.Namespace, folder: Path) -> list[Answer] | str:
    """A peer's answers, or why there are none."""
    peer = next((name for name in SOURCES if tool.startswith(name)), "")
    checkout = getattr(given, peer) if peer else "."
    if not checkout:
        return f"not installed: in no package index; give a checkout with --{peer.replace('_', '-')}"
    words = [str(HERE / "peer_verdicts.py"), tool, str(folder), "--checkout", checkout]
    if tool == "dp_recorder_grey_box":
        words = [str(HERE / "peer_grey_box.py"), "--checkout", checkout, "--repetitions", str(given.repetitions)]
        words += ["--only", *given.only] if given.only else []
    own = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(
        [given.python, *words], capture_output=True, text=True, check=False, env={**os.environ, **own}
    )
    if done.returncode != 0:
        return f"failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    return parsed(done.stdout)


def parsed(text: str) -> list[Answer]:
    """The lines of `peer_verdicts.py`; the first one, its imports, is no answer."""
    lines = [line.split() for line in text.splitlines()[1:]]
    return [Answer(job=name, accused=said == "1", seconds=float(seconds)) for name, said, seconds in lines]


def row(tool: str, answers: list[Answer] | str) -> str:
    """Of the table: bugs found, right twins accused, processor seconds an audit."""
    if isinstance(answers, str):
        return f"| {ROWS[tool]} | {answers} | | |"
    wrong = [answer for answer in answers if ".wrong." in answer.job]
    right = [answer for answer in answers if ".right." in answer.job]
    found, accused = (sum(answer.accused for answer in some) for some in (wrong, right))
    seconds = sum(answer.seconds for answer in answers) / len(answers)
    return f"| {ROWS[tool]} | {found} of {len(wrong)} | {accused} of {len(right)} | {seconds:.2g} |"


def missed(answers: list[Answer]) -> str:
    return ", ".join(answer.job.split(".")[0] for answer in answers if ".wrong." in answer.job and not answer.accused)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="that has the peers")
    parser.add_argument("--per-side", type=int, default=10_000)
    parser.add_argument("--repetitions", type=int, default=3, help="of every right twin")
    parser.add_argument("--only", nargs="*", help="bugs")
    parser.add_argument("--folder", type=Path, help="where outputs are kept (default: nowhere)")
    parser.add_argument("--tools", nargs="*", choices=ROWS, default=list(ROWS))
    for peer in SOURCES:
        words = f"--{peer.replace('_', '-')}"
        parser.add_argument(words, default=os.environ.get(peer.upper(), ""), help="checkout of its repository")
    given = parser.parse_args()
    faults = [fault for fault in zoo() if not given.only or fault.name in given.only]
    said: dict[str, list[Answer] | str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, own = given.folder or Path(name), []
        folder.mkdir(exist_ok=True)
        for job in jobs(faults, repetitions=given.repetitions, per_side=given.per_side):
            if "dpsgd-audit" in given.tools:
                own.append(ours(job))
            if given.tools != ["dpsgd-audit"]:
                written(job, folder)
        print(f"{given.per_side:,} outputs per side, risk {RISK}")
        print("| tool | bugs found | right twins accused | CPU s an audit |\n|---|---|---|---|")
        for tool in given.tools:
            said[tool] = own if tool == "dpsgd-audit" else asked(tool, given, folder)
            print(row(tool, said[tool]), flush=True)
    print()
    for tool, answers in said.items():
        if not isinstance(answers, str):
            accused = ", ".join(sorted({one.job for one in answers if ".right." in one.job and one.accused}))
            print(f"{ROWS[tool]}: missed {missed(answers) or 'none'}; accused {accused or 'none'}")


if __name__ == "__main__":
    main()
