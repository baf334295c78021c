"""Serve any function over pipes, from an environment of its own: python serve.py MODULE:FUNCTION.

Needs nothing but Python 3.6 or newer and NumPy, so an old library can be audited where it runs:

    mechanisms.command_step(command=("old-env/bin/python", "serve.py", "my_training:release"), folder="...")

``release(seed, rows)`` is given the seed of a trial and the rows of the dataset (float32, records x dimension), and
gives back the numbers that are released. What it, or the library, prints goes to standard error, never into an answer.
"""

import importlib
import os
import struct
import sys

import numpy as np


def exactly(stream, count):
    """So many bytes, or fewer at the end of the input."""
    parts = []
    while count > 0:
        piece = stream.read(count)
        if not piece:
            break
        parts.append(piece)
        count -= len(piece)
    return b"".join(parts)


def answers_apart():
    """Standard output for answers alone: file descriptor 1, where C code prints too, becomes standard error."""
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return own


def single(release):
    """The release as float32, which the protocol speaks; a number that has none there is refused by its value."""
    given = np.asarray(release).ravel()
    with np.errstate(over="ignore"):
        sent = given.astype("<f4")
    lost = np.isfinite(given) & ~np.isfinite(sent)
    if lost.any():
        sys.exit("serve.py: {:.3g} is beyond 3.4e38, the largest float32: scale the release".format(given[lost][0]))
    return sent


def serve(function, requests, answers):
    """Answer requests until there are no more."""
    rows, width = None, None
    while True:
        header = exactly(requests, 12)
        if not header:
            return
        kind, count, columns = struct.unpack("<4sII", header)
        if kind == b"HELO":
            answers.write(b"OKAY")
            answers.flush()
        elif kind == b"DATA":
            rows = np.frombuffer(exactly(requests, 4 * count * columns), "<f4").reshape(count, columns)
        elif kind == b"DRAW":
            for seed in np.frombuffer(exactly(requests, 8 * count), "<u8"):
                released = single(function(int(seed), rows.copy()))
                width = released.size if width is None else width
                if released.size != width:
                    sys.exit("serve.py: one trial released {} numbers, another {}".format(width, released.size))
                answers.write(released.tobytes())
            answers.flush()
        else:
            sys.exit("serve.py: unknown request {!r}".format(kind))


def main():
    """Import the function, with prints already moved away, and serve it."""
    if len(sys.argv) != 2 or ":" not in sys.argv[1]:
        sys.exit("usage: python serve.py MODULE:FUNCTION")
    answers = answers_apart()
    sys.path.insert(0, os.getcwd())
    module, _, name = sys.argv[1].partition(":")
    serve(getattr(importlib.import_module(module), name), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
