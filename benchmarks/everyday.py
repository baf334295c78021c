"""What everyday use costs: a first audit, the next with other numbers, a 4 x 4 grid, and the commands.

    python benchmarks/everyday.py [--beside CHECKOUT] [--commands | --trainings]

CPU seconds of each, compilation included, imports not. Commands are run as a user runs them, imports included, from
bytecode, as installers leave it: CPU seconds and seconds by the clock, suites first with nothing kept and then again.
``--commands``: those alone; ``--trainings``: the Opacus CNN of examples/own_opacus.py, its first step and its 18. With
``--beside`` another checkout does the same jobs in turns, so that both meet the same machine.
"""

import argparse
import importlib
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
TRAININGS = {"Opacus CNN, one step": ("update", 1, 400), "Opacus CNN, 18 steps": ("transcript", 6, 100)}
"""What is released, epochs of three steps, and trials."""


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


def opacus_cnn(releases, epochs, trials):
    """The example's network on 11 images and 12: Opacus divides by another number, which is found and diagnosed."""
    import jax
    import torch

    import audit
    import mechanisms

    sys.path.insert(0, str(Path("examples").resolve()))
    import own_opacus

    def train(dataset, seed):
        torch.manual_seed(seed)
        model = own_opacus.Net()
        model, optimizer, loader = own_opacus.PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
            data_loader=own_opacus.DataLoader(dataset, batch_size=4, shuffle=True),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        for _ in range(epochs):
            for images, labels in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
        return model

    images, labels = own_opacus.load_images()
    pair = mechanisms.add_record(own_opacus.TensorDataset(images[:11], labels[:11]), (images[11], labels[11]))
    training = mechanisms.torch_training(train, releases=releases)
    claim = training.claim(pair)
    return audit.run_audit(training, pair, claim=claim, trials=trials, risk=0.05, key=jax.random.key(0))


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
    if job in TRAININGS:
        importlib.import_module("opacus")
        return {job: timed(opacus_cnn, *TRAININGS[job])}
    run, first, second = {
        "collapsed": (collapsed, (0.005, 10.0), (0.006, 9.0)),
        "vector": (vector, (0.05, 10.0), (0.06, 9.0)),
        "user's function": (users, (1.0,), (2.0,)),
    }[job]
    return {f"{job}, first": timed(run, *first), f"{job}, other numbers": timed(run, *second)}


def child(checkout, *arguments, **environment):
    """CPU seconds, wall seconds and output of a process that imports the packages of a checkout."""
    variables = {**os.environ, "PYTHONPATH": str(checkout), "DPSGD_AUDIT_CACHE": "off", **environment}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, *arguments], env=variables, cwd=checkout, stdout=subprocess.PIPE, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, time.monotonic() - began, done.stdout


ONE_AUDIT = """
seed = 0
[[audit]]
name = "the noisy sum"
trials = 10_000
mechanism = { kind = "one_round", normalise_by = "none" }
neighbours = "worst_case_pair"
distinguisher = "likelihood_ratio"
claim = "subsampled_gaussian"
parameters = { records = 4, dimension = 100, rate = 0.05, noise_multiplier = 10.0, clip = 0.1 }
"""


SHUFFLED = """
seed = 0
[[audit]]
name = "a shuffled epoch"
trials = 1_000
mechanism = { kind = "many_rounds", sampler = { kind = "shuffle", batch_size = 1 } }
neighbours = { kind = "worst_case_pair", relation = "zero_out" }
claim = "fixed_batch_shuffle"
parameters = { records = 9, rounds = 10, dimension = 20, noise_multiplier = 0.7, clip = 1.0 }
"""
"""The claim is computed: some hundred points of its curve, 0.05 to 0.1 CPU s each."""


def write_inputs(folder):
    """Suites of one audit, and two files of 100,000 scores."""
    import numpy as np

    (folder / "one.toml").write_text(ONE_AUDIT)
    (folder / "shuffled.toml").write_text(SHUFFLED)
    for name, mean in (("without", 0.0), ("with", 1.0)):
        np.save(folder / f"{name}.npy", np.random.default_rng(int(mean)).normal(mean, 1.0, 100_000))


def commands(checkout):
    """Every command, in the order in which one leaves what the next reads; suites without and with what is kept."""
    # what is installed has its bytecode from the installer
    child(checkout, "-m", "compileall", "-q", "audit", "distinguishers", "dpsgd_audit", "guarantees", "mechanisms")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        records = folder / "default" / "records.json"
        jobs = {
            "run: the default suite, cold": ("run", "--out", folder / "default", "--json"),
            "run: the default suite, warm": ("run", "--out", folder / "again", "--json"),
            "run: one audit, cold": ("run", folder / "one.toml", "--out", folder / "one", "--json"),
            "run: one audit, warm": ("run", folder / "one.toml", "--out", folder / "one-again", "--json"),
            "run: a shuffled epoch, cold": ("run", folder / "shuffled.toml", "--out", folder / "epoch", "--json"),
            "run: a shuffled epoch, warm": ("run", folder / "shuffled.toml", "--out", folder / "epoch-again", "--json"),
            "bound: two files of 1e5 scores": (
                "bound",
                "--without",
                folder / "without.npy",
                "--with",
                folder / "with.npy",
            ),
            "verify: the default records": ("verify", records),
            "report: the default records": ("report", records, "--out", folder / "page.html"),
            "claim gaussian(mu=1)": ("claim", "gaussian(mu=1)"),
        }
        found = {}
        for job, words in jobs.items():
            own = next((word for word in ("one audit", "shuffled") if word in job), "the default suite and its records")
            cpu, wall, _ = child(
                checkout, "-m", "dpsgd_audit", *map(str, words), DPSGD_AUDIT_CACHE=str(folder / f"kept by {own}")
            )
            found |= {f"{job}: CPU": cpu, f"{job}: clock": wall}
    return found


def main():
    """Print a table, one column for each checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path, help="another checkout to do the same jobs")
    parser.add_argument("--commands", action="store_true", help="time the commands alone")
    parser.add_argument("--trainings", action="store_true", help="time trainings of one's own alone")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    here = Path(__file__).resolve().parent.parent
    checkouts = [path.resolve() for path in (arguments.beside, here) if path is not None]
    columns = [{} for _ in checkouts]
    print(f"| job | {' | '.join(path.name for path in checkouts)} |\n{'|---' * (1 + len(checkouts))}|", flush=True)
    every = ("collapsed", "vector", "user's function", "grid", "commands")
    chosen = {"commands": arguments.commands, **dict.fromkeys(TRAININGS, arguments.trainings)}
    for job in [job for job, asked in chosen.items() if asked] or every:
        known = set(columns[0])
        for checkout, column in zip(checkouts, columns, strict=True):
            if job == "commands":
                column |= commands(checkout)
            else:
                column |= json.loads(child(checkout, str(Path(__file__).resolve()), "--measure", job)[2])
        for name in (name for name in columns[0] if name not in known):
            print(f"| {name} | {' | '.join(f'{column[name]:.1f}' for column in columns)} |", flush=True)


if __name__ == "__main__":
    main()
