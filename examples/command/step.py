"""One noisy sum of clipped gradients, spoken over pipes: python step.py CLIP NOISE_MULTIPLIER."""

import struct
import sys

import numpy as np

clip, noise_multiplier = float(sys.argv[1]), float(sys.argv[2])
read, write = sys.stdin.buffer.read, sys.stdout.buffer.write
while header := read(12):
    kind, count, width = struct.unpack("<4sII", header)
    if kind == b"DATA":
        rows = np.frombuffer(read(4 * count * width), "<f4").reshape(count, width)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        total = (rows / np.maximum(1, norms / clip)).sum(axis=0)
    elif kind == b"DRAW":
        for seed in np.frombuffer(read(8 * count), "<u8"):
            noise = np.random.default_rng(seed).normal(0, noise_multiplier * clip, total.size)
            write((total + noise).astype("<f4").tobytes())
        sys.stdout.buffer.flush()
