"""What the three libraries have in common: sizes, and bugs that are a wrong number handed to right code."""

from __future__ import annotations

import math

MICROBATCHES = 4


def records_of(gradients):
    return len(next(iter(gradients.values())))


def seed_drawn_from(seed, bug):
    return {"constant_seed": 0, "few_seeds": seed % 16}.get(bug, seed)


def rate_sampled_at(rate, bug):
    return {"rate_doubled": min(1.0, 2 * rate), "rate_too_small": 0.8 * rate}.get(bug, rate)


def deviation_of_noise(noise_multiplier, clip, batch, bug):
    right = noise_multiplier * clip
    wrong = {
        "noise_times_08": 0.8 * right,
        "too_much_noise": 1.25 * right,
        "noise_without_clip": noise_multiplier,
        "variance_for_deviation": math.sqrt(noise_multiplier) * clip,
        "noise_of_the_mean": right / batch,
    }
    return wrong.get(bug, right)
