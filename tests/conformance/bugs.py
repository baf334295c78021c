"""What people get wrong in DP-SGD: each bug is a switch of three small libraries (NumPy, PyTorch, JAX)."""

from __future__ import annotations

import dataclasses

LEAKS = "violation"
DIFFERS = "not the mechanism stated"


@dataclasses.dataclass(frozen=True)
class Bug:
    """What is wrong, in words, and how the default run must call it."""

    what: str
    verdict: str = LEAKS


BUGS = {
    # the eleven of the first list
    "noise_times_08": Bug("noise of .8 of what is due"),
    "constant_seed": Bug("the generator has the same seed in every run"),
    "reseeded_every_step": Bug("the generator is seeded anew at every step"),
    "batch_clipped": Bug("the sum over the batch is clipped, not the gradients"),
    "divided_by_batch": Bug("divided by the number of records taken"),
    "microbatch_noise": Bug("k microbatches, noise over k on each where 1 over sqrt(k) is due"),
    "float16_noise": Bug("noise drawn in half precision"),
    "max_norm": Bug("clipped by the largest coordinate, not the length"),
    "bias_not_clipped": Bug("the last tensor is left out of norm and clipping"),
    "noise_on_first_tensor": Bug("noise on the first tensor alone"),
    "even_batch": Bug("a batch is cut to an even number of records"),
    # sampling
    "fixed_batch": Bug("batches drawn by a generator of constant seed"),
    "fixed_size_batch": Bug("a fixed number of records, accounted as Poisson"),
    "with_replacement": Bug("records drawn with replacement"),
    "rate_doubled": Bug("sampled at twice the stated rate"),
    "rate_too_small": Bug("sampled at .8 of the stated rate", DIFFERS),
    "last_record_dropped": Bug("the last record never takes part", DIFFERS),
    # clipping
    "clipping_ignored": Bug("nothing is clipped"),
    "coordinates_clipped": Bug("each coordinate is cut at the bound"),
    "clipped_per_tensor": Bug("each tensor may have the whole bound"),
    "tolerance": Bug("clipped only beyond 1.5 times the bound"),
    "squared_norm": Bug("the root of the squared norm is forgotten"),
    "float16_norm": Bug("the norm overflows in half precision, and such gradients are left as they are"),
    "norm_over_batch": Bug("the norm is taken over the records, coordinate by coordinate"),
    "normalised": Bug("short gradients are scaled up to the bound", DIFFERS),
    "nan_released": Bug("NaN passes through"),
    "nan_skips_step": Bug("a step with a NaN in it is skipped"),
    # sums
    "mean_clipped": Bug("the batch's mean is clipped"),
    "microbatches_clipped": Bug("two records are clipped together"),
    "divided_by_nonzero": Bug("divided by the number of records with a gradient that is not zero"),
    "accumulated_twice": Bug("gradients are accumulated twice"),
    "bound_of_the_batch": Bug("the bound, and the noise, follow the batch's longest gradient"),
    # noise
    "no_noise": Bug("no noise"),
    "noise_without_clip": Bug("noise not multiplied by the clipping bound"),
    "variance_for_deviation": Bug("the noise multiplier is used as a variance"),
    "noise_of_the_mean": Bug("noise of the mean added to the sum"),
    "laplace_noise": Bug("Laplace noise of the same variance"),
    "uniform_noise": Bug("uniform noise of the same variance"),
    "truncated_noise": Bug("noise cut at 2 deviations"),
    "one_number_of_noise": Bug("one number of noise for all coordinates"),
    "tensors_share_noise": Bug("every tensor's noise starts from the same seed"),
    "noise_if_not_empty": Bug("an empty batch gets no noise"),
    "noise_before_clipping": Bug("noise on each gradient before it is clipped, none after"),
    "few_seeds": Bug("a generator of 16 possible seeds"),
    "too_much_noise": Bug("noise of 1.25 of what is due", DIFFERS),
    "noise_on_each_microbatch": Bug("all of the noise on each of 4 microbatches", DIFFERS),
    # several steps
    "same_batch_every_step": Bug("one batch for all steps"),
    "shuffled": Bug("shuffled epochs, accounted as Poisson"),
    "momentum_before_noise": Bug("momentum of the sums before noise"),
    "noise_negated": Bug("every second step has the noise of the one before, negated"),
    "noise_on_last_step": Bug("noise on the last step alone"),
    "last_step_dropped": Bug("the last batch is dropped: its update is zero", DIFFERS),
}
"""Bugs by the name of their switch."""
