"""Foreign steps for tests, importable by spawned workers."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

CLIP, NOISE = 1.0, 0.5


def noisy_sum(seed: int | list[int], dataset: np.ndarray) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return dataset.sum(axis=0) + NOISE * CLIP * generator.standard_normal(dataset.shape[1])


def too_little_noise(seed: int, dataset: np.ndarray) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return dataset.sum(axis=0) + NOISE / 2 * CLIP * generator.standard_normal(dataset.shape[1])


def fails_sometimes(seed: int, dataset: np.ndarray) -> np.ndarray:
    if seed % 50 == 7:
        raise KeyError("weights")
    return noisy_sum(seed, dataset)


def needs_a_package(seed: int, dataset: np.ndarray) -> np.ndarray:
    import package_that_nobody_has

    return package_that_nobody_has.noisy_sum(seed, dataset)


def fails_with_the_record(seed: int, dataset: np.ndarray) -> np.ndarray:
    if dataset.any():
        raise ValueError("one class only")
    return noisy_sum(seed, dataset)


def hangs(seed: int, dataset: np.ndarray) -> np.ndarray:
    time.sleep(60)
    return noisy_sum(seed, dataset)


def leaves(seed: int, dataset: np.ndarray) -> np.ndarray:
    sys.exit(0)


def dies(seed: int, dataset: np.ndarray) -> np.ndarray:
    os._exit(3)


def gives_nan(seed: int, dataset: np.ndarray) -> np.ndarray:
    return noisy_sum(seed, dataset) * (np.nan if seed % 50 == 7 else 1.0)


def seeds_a_global_generator(seed: int, dataset: np.ndarray) -> np.ndarray:
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002
    time.sleep(1e-4)
    return dataset.sum(axis=0) + np.random.standard_normal(dataset.shape[1])  # noqa: NPY002


def released_parts(seed: int, dataset: np.ndarray) -> dict[str, object]:
    noisy = noisy_sum(seed, dataset)
    return {"first": float(noisy[0]), "rest": noisy[1:]}


def released_rounds(seed: int, dataset: np.ndarray) -> dict[str, np.ndarray]:
    rounds = np.stack([noisy_sum([seed, turn], dataset) for turn in range(4)])
    return {"first": rounds[:, 0], "rest": rounds[:, 1:]}


def slow_sum(seed: int, dataset: np.ndarray) -> np.ndarray:
    time.sleep(2e-3)
    return noisy_sum(seed, dataset)


def rows_twice_as_long(dataset: np.ndarray) -> np.ndarray:
    return 2 * dataset


def says_two_lines(seed, dataset):
    """An error with a message of two lines."""
    raise RuntimeError("no memory\nline 2")
