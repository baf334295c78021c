"""Install the libraries that some tests audit, where that takes reasonable time: PyTorch and Opacus.

Run by `make test`. uv installs a CPU build of PyTorch in seconds, pip in half a minute; gigabytes of CUDA are given up
on. Nothing depends on it: without them their tests are skipped, and say so.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

SECONDS = 300
STEPS = (["torch==2.13.0"], ["--no-deps", "opacus==1.6.0"])


def install() -> str | None:
    """What went wrong, or None."""
    if shutil.which("uv") and _with_uv() is None:
        return None
    return _with_pip()


def _with_uv() -> str | None:
    # uv does not read pip's variables, and a machine's CPU build of PyTorch may be known to pip alone
    places = [word for place in os.environ.get("PIP_FIND_LINKS", "").split() for word in ("--find-links", place)]
    return _run(["uv", "pip", "install", "--python", sys.executable, *places])


def _with_pip() -> str | None:
    if importlib.util.find_spec("pip") is None:
        subprocess.run([sys.executable, "-m", "ensurepip"], check=False, capture_output=True, timeout=SECONDS)
    return _run([sys.executable, "-m", "pip", "install"])


def _run(command: list[str]) -> str | None:
    for words in STEPS:
        asked = [*command, "--quiet", *words]
        done = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or [f"{command[0]} failed"])[-1]
    return None


if __name__ == "__main__":
    try:
        problem = install()
    except subprocess.TimeoutExpired:
        problem = f"more than {SECONDS} s"
    if problem is not None:
        print(f"PyTorch and Opacus were not installed ({problem}): the tests that audit them will be skipped.")
