"""What everyday use costs: a first audit, the next with other numbers, a 4 x 4 grid, the default suite.

    python benchmarks/everyday.py [--beside CHECKOUT]

CPU seconds of each, compilation included, imports not (but of the suite, which is the command as a user runs it). With
``--beside`` another checkout does the same jobs in turns, so that both meet the same machine.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RATES, NOISES = (0.002, 0.004, 0.008, 0.016), (1.0, 2.0, 5.0, 10.0)
RECORDS, DIMENSION = 59_999, 1_485_217


def collapsed(rate, noise):
    """One audit of EASGM through sufficient statistics: 60,000 records, 1.5 million parameters."""
    import jax

    import audit
    import distinguishers
    import guarantees
    import mechanisms

    pair = mechanisms.worst_case_pair(records=RECORDS, dimension=DIMENSION, clip=0.1)
    step = mechanisms.one_round(normalise_by="expected_batch", rate=rate, clip=0.1, noise_multiplier=noise).collapsed()
    ratio = distinguishers.likelihood_ratio(step, pair)
    claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=noise)
    return audit.run_audit(step, pair, ratio, claim=claim, trials=20_000, risk=0.05, key=jax.random.key(0))


def vector(rate, noise):
    """The README's audit: four records, vectors of 100 coordinates, a diagnosis after the violation."""
    import jax

    import audit
    import distinguishers
    import guarantees
    import mechanisms

    pair = mechanisms.worst_case_pair(records=4, dimension=100, clip=0.1)
    step = mechanisms.one_round(normalise_by="expected_batch", rate=rate, clip=0.1, noise_multiplier=noise)
    ratio = distinguishers.likelihood_ratio(step, pair)
    claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=noise)
    return audit.run_audit(step, pair, ratio, claim=claim, trials=10_000, risk=0.05, key=jax.random.key(0))


def users(scale):
    """A user's own function with the battery, on other data each time."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import audit
    import distinguishers
    import guarantees
    import mechanisms

    def step(key, gradients):
        clipped = gradients / jnp.maximum(1.0, jnp.linalg.norm(gradients, axis=1, keepdims=True))
        return clipped.sum(0) + 2.0 * jax.random.normal(key, gradients.shape[1:])

    rows = scale * np.random.default_rng(0).normal(size=(5, 100)).astype(np.float32)
    pair = mechanisms.Neighbours(without=rows[:4], with_record=rows, relation="add_remove")
    claim = guarantees.gaussian(mu=0.5)
    score = distinguishers.battery(pair)
    return audit.run_audit(step, pair, score, claim=claim, trials=10_000, risk=0.05, key=jax.random.key(0))


def timed(job, *numbers):
    """CPU seconds of one call, all threads together."""
    began = time.process_time()
    job(*numbers)
    return time.process_time() - began


def warm():
    """Import everything and let JAX start."""
    import jax

    import audit
    import distinguishers
    import guarantees
    import mechanisms

    jax.random.normal(jax.random.key(0)).block_until_ready()
    return audit.run_audit, distinguishers.likelihood_ratio, guarantees.gaussian, mechanisms.one_round


def measure(job):
    """What one child process measures of itself."""
    warm()
    if job == "grid":
        return {"4 x 4 grid": timed(lambda: [collapsed(rate, noise) for rate in RATES for noise in NOISES])}
    run, first, second = {
        "collapsed": (collapsed, (0.005, 10.0), (0.006, 9.0)),
        "vector": (vector, (0.05, 10.0), (0.06, 9.0)),
        "user's function": (users, (1.0,), (2.0,)),
    }[job]
    return {f"{job}, first": timed(run, *first), f"{job}, other numbers": timed(run, *second)}


def child(checkout, *arguments, **environment):
    """CPU seconds, wall seconds and output of a process that imports the packages of a checkout."""
    variables = {**os.environ, "PYTHONPATH": str(checkout), "DPSGD_AUDIT_CACHE": "off", **environment}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, *arguments], env=variables, cwd=checkout, stdout=subprocess.PIPE, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, time.monotonic() - began, done.stdout


def suite(checkout):
    """The command, without and with programs that an earlier run left."""
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name in ("default suite", "default suite, run again"):
            out = str(Path(folder) / name.replace(" ", "-"))
            run = ("-m", "dpsgd_audit", "run", "--out", out, "--json")
            cpu, wall, _ = child(checkout, *run, DPSGD_AUDIT_CACHE=str(Path(folder) / "compiled"))
            found |= {name: cpu, f"{name}, wall": wall}
    return found


def main():
    """Print a table, one column for each checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path, help="another checkout to do the same jobs")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    here = Path(__file__).resolve().parent.parent
    checkouts = [path.resolve() for path in (arguments.beside, here) if path is not None]
    columns = [{} for _ in checkouts]
    print(f"| job | {' | '.join(path.name for path in checkouts)} |\n{'|---' * (1 + len(checkouts))}|", flush=True)
    for job in ("collapsed", "vector", "user's function", "grid", "suite"):
        for checkout, column in zip(checkouts, columns, strict=True):
            if job == "suite":
                column |= suite(checkout)
            else:
                column |= json.loads(child(checkout, str(Path(__file__).resolve()), "--measure", job)[2])
        for name in list(columns[0])[-4 if job == "suite" else -2 if job != "grid" else -1 :]:
            print(f"| {name} | {' | '.join(f'{column[name]:.1f}' for column in columns)} |", flush=True)


if __name__ == "__main__":
    main()
