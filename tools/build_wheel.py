"""Build the wheel of the last commit into a folder: `make wheel`, and the tests that install it.

Zip archives keep times and permissions, so the copy that is built has those of the commit and of nobody's machine.
The same commit and the same setuptools give the same bytes.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (
    "audit",
    "mechanisms",
    "distinguishers",
    "guarantees",
    "dpsgd_audit",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
BUILD = "from setuptools import build_meta; import sys; print(build_meta.build_wheel(sys.argv[1]))"
EARLIEST = 315532800
"""1980, before which zip archives know no time; it stands in where there is no commit to ask."""


def committed() -> tuple[bytes, int]:
    """The sources as the last commit has them, as a tar archive, and its time."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout

    return git("archive", "HEAD", "--", *SOURCES), int(git("log", "-1", "--format=%ct"))


def working() -> bytes:
    """The sources as they lie in the checkout."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in SOURCES:
            tar.add(ROOT / name, name, filter=lambda entry: None if "__pycache__" in entry.name else entry)
    return archive.getvalue()


def build(archive: bytes, out: Path, *, time: int = EARLIEST) -> Path:
    """Build the sources in a folder of their own, all files with one mode, all entries with one time."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(place, filter="data")
        for path in Path(place).rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        done = subprocess.run(
            [sys.executable, "-c", BUILD, str(out.resolve())],
            cwd=place,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(time)},
            umask=0o022,
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return out / done.stdout.splitlines()[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the wheel of the last commit.")
    parser.add_argument("folder", type=Path, help="where the wheel goes")
    folder = parser.parse_args().folder
    source, date = committed()
    print(build(source, folder, time=date))
