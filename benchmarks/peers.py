"""An environment of their own for the peers that benchmarks measure beside us: `.venv/peers`.

    python benchmarks/peers.py

Prints its Python, and a line for each peer that could not be installed, with the reason. Their pins differ from ours,
so nothing of them enters the environment of the project. Three peers are in no package index: where DP_AUDITORIUM,
DELTA_SIEGE or DP_RECORDER says where a checkout of one lies, what it needs is installed here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".venv" / "peers"
PYTHON = FOLDER / "bin" / "python"
SECONDS = 300
PEERS = {
    "jax_privacy": [["jax-privacy==2.0.0"]],
    "privacy_estimates": [["privacy-estimates==0.1.0.post1"]],
    # without TensorFlow, which its bounds do not use
    "tensorflow_privacy": [
        ["immutabledict", "scikit-learn<1.6", "statsmodels"],
        ["--no-deps", "tensorflow-empirical-privacy==0.1.0"],
    ],
    "gdpnum": [["gdpnum==0.1.2"]],
    "riskcal": [["riskcal==1.5.1"]],
    "PLD_accounting": [["PLD-accounting==2.0"]],
    "prv_accountant": [["prv-accountant==0.2.0"]],
}
"""What is installed for each module, in steps."""
CHECKOUTS = {
    "DP_AUDITORIUM": {"tensorflow": [["tensorflow>=2.16", "etils"]]},
    "DELTA_SIEGE": {"optuna": [["optuna", "scikit-learn", "tqdm"]]},
    "DP_RECORDER": {"tqdm": [["dp-accounting", "scikit-learn", "tqdm"]]},
}
"""The same of what a peer needs that is in no package index."""


def installed(module: str) -> bool:
    """Whether the environment has it."""
    words = [PYTHON, "-c", f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"]
    return PYTHON.exists() and subprocess.run(words, check=False).returncode == 0


def install() -> dict[str, str]:
    """Why peers are missing, by module."""
    uv = shutil.which("uv")
    if not PYTHON.exists():
        make = [uv, "venv", "-q", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
        subprocess.run([*make, str(FOLDER)], check=True)
    pip = [uv, "pip", "install", "-q", "--python", str(PYTHON)] if uv else [str(PYTHON), "-m", "pip", "install", "-q"]
    needs = [modules for variable, modules in CHECKOUTS.items() if os.environ.get(variable)]
    wanted = {module: steps for modules in (PEERS, *needs) for module, steps in modules.items()}
    problems = {module: failure(pip, steps) for module, steps in wanted.items() if not installed(module)}
    return {module: why for module, why in problems.items() if why is not None}


def failure(pip: list[str], steps: list[list[str]]) -> str | None:
    """Why an installation failed, or None."""
    for words in steps:
        try:
            done = subprocess.run([*pip, *words], check=False, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"more than {SECONDS} s"
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["pip failed"])[-1].strip()
    return None


if __name__ == "__main__":
    found = install()
    print(PYTHON)
    for name, why in found.items():
        print(f"{name}: not installed ({why})")
