"""Install the libraries that some tests audit, where that takes reasonable time: PyTorch and Opacus.

Run by `make test`. A CPU build of PyTorch takes half a minute; gigabytes of CUDA are given up on. Nothing depends on
it: without them their tests are skipped, and say so.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

SECONDS = 300
STEPS = (["torch==2.13.0"], ["--no-deps", "opacus==1.6.0"])


def install() -> str | None:
    """What went wrong, or None."""
    if importlib.util.find_spec("pip") is None:
        subprocess.run([sys.executable, "-m", "ensurepip"], check=False, capture_output=True, timeout=SECONDS)
    for words in STEPS:
        command = [sys.executable, "-m", "pip", "install", "--quiet", *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return None


if __name__ == "__main__":
    try:
        problem = install()
    except subprocess.TimeoutExpired:
        problem = f"more than {SECONDS} s"
    if problem is not None:
        print(f"PyTorch and Opacus were not installed ({problem}): the tests that audit them will be skipped.")
