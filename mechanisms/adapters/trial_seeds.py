"""The seeds that foreign code is given: one integer each trial."""

from __future__ import annotations

import hashlib

import numpy as np

from guarantees.checks import require

FEISTEL_ROUNDS = 6


def trial_seeds(words: np.ndarray, start: int, stop: int) -> np.ndarray:
    """One 64-bit seed for each of the trials start..stop-1, a function of (key words, trial) alone.

    The lower 32 bits are a keyed permutation of the trial's number (a Feistel network): generators that read only 32
    bits, as PyTorch's does, never get one seed twice under one key, where a plain hash would repeat after about 65,000.
    """
    require("trials", stop <= 2**32, "at most 2^32 per side, of foreign code", stop)
    material = hashlib.blake2b(np.ascontiguousarray(words, "<u4").tobytes(), person=b"dpsgd-audit").digest()
    keys = np.frombuffer(material, "<u8")
    trials = np.arange(start, stop, dtype=np.uint64)
    half = np.uint64(0xFFFF)
    left, right = trials >> np.uint64(16), trials & half
    for turn in range(FEISTEL_ROUNDS):
        left, right = right, left ^ (_mix(right ^ keys[turn]) & half)
    low = (left << np.uint64(16)) | right
    return (_mix(trials ^ keys[-1]) & ~np.uint64(0xFFFFFFFF)) | low


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64, modulo 2^64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
