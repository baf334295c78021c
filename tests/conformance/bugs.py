"""What people get wrong in DP-SGD: each bug is a switch of three small libraries (NumPy, PyTorch, JAX)."""

from __future__ import annotations

import dataclasses

LEAKS = "violation"
DIFFERS = "not the mechanism stated"


@dataclasses.dataclass(frozen=True)
class Bug:
    """What is wrong, in words, the pair where it shows most, and how the default run must call it."""

    what: str
    shows: str
    verdict: str = LEAKS


BUGS = {
    # the eleven of the first list
    "noise_times_08": Bug("noise of .8 of what is due", "dense"),
    "constant_seed": Bug("the generator has the same seed in every run", "dense"),
    "reseeded_every_step": Bug("the generator is seeded anew at every step", "opposite_steps"),
    "batch_clipped": Bug("the sum over the batch is clipped, not the gradients", "opposed"),
    "divided_by_batch": Bug("divided by the number of records taken", "large_rate"),
    "microbatch_noise": Bug("k microbatches, noise over k on each where 1 over sqrt(k) is due", "dense"),
    "float16_noise": Bug("noise drawn in half precision", "dense"),
    "max_norm": Bug("clipped by the largest coordinate, not the length", "dense"),
    "bias_not_clipped": Bug("the last tensor is left out of norm and clipping", "last_coordinate"),
    "noise_on_first_tensor": Bug("noise on the first tensor alone", "last_coordinate"),
    "even_batch": Bug("a batch is cut to an even number of records", "duplicates"),
    # sampling
    "fixed_batch": Bug("batches drawn by a generator of constant seed", "medium_rate"),
    "fixed_size_batch": Bug("a fixed number of records, accounted as Poisson", "medium_rate"),
    "with_replacement": Bug("records drawn with replacement", "opposed"),
    "rate_doubled": Bug("sampled at twice the stated rate", "small_rate"),
    "rate_too_small": Bug("sampled at .8 of the stated rate", "a_step_is", DIFFERS),
    "last_record_dropped": Bug("the last record never takes part", "a_step_is", DIFFERS),
    # clipping
    "clipping_ignored": Bug("nothing is clipped", "dense"),
    "coordinates_clipped": Bug("each coordinate is cut at the bound", "dense"),
    "clipped_per_tensor": Bug("each tensor may have the whole bound", "every_tensor"),
    "tolerance": Bug("clipped only beyond 1.5 times the bound", "barely_too_long"),
    "squared_norm": Bug("the root of the squared norm is forgotten", "barely_too_long"),
    "float16_norm": Bug("the norm overflows in half precision, and such gradients are left as they are", "huge"),
    "norm_over_batch": Bug("the norm is taken over the records, coordinate by coordinate", "dense"),
    "normalised": Bug("short gradients are scaled up to the bound", "a_step_is", DIFFERS),
    "far_dropped": Bug("a gradient beyond 1,000 times the bound is dropped", "a_step_is", DIFFERS),
    "nan_released": Bug("NaN passes through", "not_a_number"),
    "nan_skips_step": Bug("a step with a NaN in it is skipped", "not_a_number"),
    # sums
    "mean_clipped": Bug("the batch's mean is clipped", "opposed"),
    "microbatches_clipped": Bug("two records are clipped together", "opposed"),
    "divided_by_nonzero": Bug("divided by the number of records with a gradient that is not zero", "large_rate"),
    "equal_counted_once": Bug("equal gradients are counted once", "a_step_is", DIFFERS),
    "accumulated_twice": Bug("gradients are accumulated twice", "dense"),
    "bound_of_the_batch": Bug("the bound, and the noise, follow the batch's longest gradient", "dense"),
    # noise
    "no_noise": Bug("no noise", "dense"),
    "noise_without_clip": Bug("noise not multiplied by the clipping bound", "dense"),
    "variance_for_deviation": Bug("the noise multiplier is used as a variance", "large_rate"),
    "noise_of_the_mean": Bug("noise of the mean added to the sum", "dense"),
    "laplace_noise": Bug("Laplace noise of the same variance", "last_coordinate"),
    "uniform_noise": Bug("uniform noise of the same variance", "last_coordinate"),
    "truncated_noise": Bug("noise cut at 2 deviations", "dense"),
    "one_number_of_noise": Bug("one number of noise for all coordinates", "dense"),
    "tensors_share_noise": Bug("every tensor's noise starts from the same seed", "dense"),
    "noise_if_not_empty": Bug("an empty batch gets no noise", "large_rate"),
    "noise_before_clipping": Bug("noise on each gradient before it is clipped, none after", "dense"),
    "one_key": Bug("the batch and the noise are drawn from one key", "own_noise"),
    "few_seeds": Bug("a generator of 16 possible seeds", "dense"),
    "too_much_noise": Bug("noise of 1.25 of what is due", "a_step_is", DIFFERS),
    "noise_on_each_microbatch": Bug("all of the noise on each of 4 microbatches", "a_step_is", DIFFERS),
    # several steps
    "same_batch_every_step": Bug("one batch for all steps", "many_steps"),
    "shuffled": Bug("shuffled epochs, accounted as Poisson", "epoch"),
    "momentum_before_noise": Bug("momentum of the sums before noise", "equal_steps"),
    "noise_negated": Bug("every second step has the noise of the one before, negated", "equal_steps"),
    "noise_on_last_step": Bug("noise on the last step alone", "equal_steps"),
    "last_step_dropped": Bug("the last batch is dropped: its update is zero", "a_training_is", DIFFERS),
}
"""Bugs by the name of their switch."""
