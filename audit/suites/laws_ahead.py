"""Laws of a suite's claims and exact curves, found by a second process while this one imports JAX and compiles.

Python runs one thread at a time, and laws are Python's. The two processes meet in the folder of kept laws alone: what
the second one has written is found there, the rest is computed here as ever, to the same bits.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from audit.suites.suite import AuditSpec
from dpsgd_audit.name_clashes import HOME
from guarantees.laws.kept import is_kept, kept, laws_kept_in

FEWEST = 4
"""Audits for which a second process is started: it takes half a second before it finds anything."""
SIMULATED = ("one_round", "many_rounds", "collapsed_round")
"""Mechanisms that know exact curves which take long to compute, and need no library."""
FOUND = "all laws of some audits"
PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop()); from audit.suites.laws_ahead import serve; serve()"


@contextlib.contextmanager
def laws_ahead(audits: Sequence[AuditSpec], folder: Path | None) -> Iterator[None]:
    """Have the laws of these audits found until the block ends; where they were before, nothing is started."""
    ours = tuple(spec for spec in audits if spec.mechanism.get("kind") in SIMULATED)
    if folder is None or len(ours) < FEWEST or (os.cpu_count() or 1) < 2 or is_kept(FOUND, _told(ours)):
        yield
        return
    # -P: no folder of the user's comes before ours
    command = [sys.executable, "-P", "-c", PROGRAM, str(HOME)]
    silent = subprocess.DEVNULL
    try:
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=silent, stderr=silent)
    except OSError:
        # a machine that starts no more processes leaves all of it to this one
        yield
        return
    with started as process:
        told = process.stdin
        assert told is not None
        try:
            # one that ended at once leaves all of it to this process
            with contextlib.suppress(OSError):
                told.write(pickle.dumps((folder, ours)))
                told.flush()
            yield
        finally:
            process.kill()
            with contextlib.suppress(OSError):
                told.close()


def serve() -> None:
    """What the second process does: its standard input holds the folder and the audits, and ends with the first."""
    folder, audits = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    with laws_kept_in(folder):
        kept(FOUND, _told(audits), lambda: _find(audits))


def _end_with(stream: IO[bytes]) -> None:
    stream.read()
    os._exit(0)


def _told(audits: Sequence[AuditSpec]) -> str:
    """All of them that decides their laws."""
    return repr([(own.mechanism, own.neighbours, own.distinguisher, own.claim, own.parameters) for own in audits])


def _find(audits: Sequence[AuditSpec]) -> int:
    """Claims first, since a suite is built before it runs; no code of the user's is run here."""
    from audit.policies.candidates import from_curve
    from audit.suites.build import build

    built = []
    for spec in audits:
        # what is wrong with an audit is said in its own turn
        with contextlib.suppress(Exception):
            built.append(build(spec, run_code=False))
    for audit in built:
        with contextlib.suppress(Exception):
            curve = getattr(audit.distinguisher, "curve", None)
            if curve is not None:
                from_curve(curve)
    return len(built)
