"""The command dpsgd-audit, also ``python -m dpsgd_audit``."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

from dpsgd_audit import name_clashes

BAD_ENVIRONMENT = 2


def main() -> int:
    """Run the command line, unless somebody else's package has one of our names."""
    if wrong := name_clashes.found():
        print(f"dpsgd-audit: {wrong}", file=sys.stderr)
        return BAD_ENVIRONMENT
    # what has been imported stays to the end: looking through it for garbage, at the end above all, took a tenth of
    # the time of `bound`
    gc.set_threshold(50_000, 20, 20)
    atexit.register(gc.freeze)
    # XLA's warnings (jax 0.9.2: one for every program that comes from the cache) would stand between our lines
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from audit.cli import INTERRUPTED
    from audit.cli import main as command

    code = command()
    if code == INTERRUPTED:
        # XLA may still compile, and Python waits for it: a second Ctrl-C ends the process at once
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


if __name__ == "__main__":
    sys.exit(main())
