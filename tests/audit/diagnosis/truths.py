"""What may be said of every known bug without being false: the zoo's, the conformance libraries', the unseen ten."""

from __future__ import annotations

from audit.record.diagnosis_answer import Diagnosis

WORDS = {
    "bounded": "unbounded",
    "repeated": "repeats",
    "silent": "silent",
    "bare": "bare",
    "direction": "direction",
    "shared": "shared",
    "scale_by_trial": "division",
    "scale_by_record": "depends",
    "batches": "batches",
    "steps": "steps",
    "rate": "rate",
    "grain": "grain",
    "tails": "shape",
    "normal": "shape",
}

UNSEEN_WORDS = {
    "unbounded": "clipping",
    "direction": "clipping",
    "depends": "division",
    "batches": "sampling",
    "rate": "sampling",
    "silent": "bare",
    "grain": "shape",
    "over": "noise",
}
"""In the words that were fixed with the unseen bugs."""


def word(answer: Diagnosis) -> str:
    """What an answer blames; noise over sensitivity by which of the two it says is off."""
    if answer.code != "ratio":
        return WORDS[answer.code]
    if "another_rate" in answer.causes:
        return "open"
    little, far = "less_noise" in answer.causes, bool({"not_clipped_alone", "sum_scaled"} & set(answer.causes))
    return "over" if little and far else "sensitivity" if far else "noise"


def said(answers: tuple[Diagnosis, ...]) -> list[Diagnosis]:
    """What reports show."""
    return [answer for answer in answers if answer.wrong and not answer.follows]


def judged(answers: tuple[Diagnosis, ...], truths: tuple[str, ...], *, unseen: bool = False) -> str:
    """'right' where all that is said is true, 'wrong' where something is not, 'nothing' where nothing is said."""
    words = {word(answer) for answer in said(answers)}
    if unseen:
        words = {UNSEEN_WORDS.get(own, own) for own in words}
    # a list of possible causes is right where one of them is
    either = ("open",) if {"rate", "sampling", "noise", "sensitivity"} & set(truths) else ()
    either += ("over",) if {"noise", "sensitivity"} & set(truths) else ()
    return "nothing" if not words else "right" if words <= {*truths, *either} else "wrong"


ZOO = {
    "divided_by_expected_batch": ("depends",),
    "divided_by_floor_of_expected_batch": ("depends",),
    "divided_by_realised_batch": ("division", "depends"),
    "fixed_size_batch": ("batches",),
    "first_batch": ("batches",),
    "rate_of_the_loader": ("rate",),
    "clipping_ignored": ("sensitivity", "unbounded"),
    "bias_left_out": ("sensitivity", "direction"),
    "clipped_per_layer": ("sensitivity", "direction"),
    "batch_clipped": ("sensitivity",),
    "microbatches_clipped": ("sensitivity",),
    "mean_loss_gradients": ("sensitivity",),
    "bound_of_the_batch": ("depends", "division"),
    "scaled_by_the_data": ("sensitivity",),
    "non_finite_skipped": ("silent",),
    "noise_of_the_mean": ("noise",),
    "noise_without_clip": ("noise",),
    "noise_shared_by_virtual_steps": ("noise",),
    "no_noise": ("silent",),
    "noise_below_target": ("noise",),
    "key_reused_across_parameters": ("shared",),
    "grained_noise": ("grain",),
    "cut_tails": ("shape",),
    "key_reused_across_steps": ("shared",),
    "noise_on_the_last_virtual_step": ("bare",),
    "steps_from_the_dataset_size": ("bare", "silent"),
    "four_steps_for_one": ("sensitivity",),
}
"""Bugs of tests/zoo/faults.py."""

CONFORMANCE = {
    "noise_times_08": ("noise",),
    "constant_seed": ("repeats",),
    "reseeded_every_step": ("shared",),
    "batch_clipped": ("sensitivity",),
    "divided_by_batch": ("division", "depends"),
    "microbatch_noise": ("noise",),
    "float16_noise": ("grain",),
    "max_norm": ("sensitivity",),
    "bias_not_clipped": ("sensitivity", "direction"),
    "noise_on_first_tensor": ("bare",),
    "even_batch": ("sensitivity", "batches"),
    "fixed_batch": ("batches",),
    "fixed_size_batch": ("batches",),
    "with_replacement": ("batches",),
    "rate_doubled": ("rate",),
    "clipping_ignored": ("sensitivity",),
    "coordinates_clipped": ("sensitivity", "direction"),
    "clipped_per_tensor": ("sensitivity", "direction"),
    "tolerance": ("sensitivity",),
    "squared_norm": ("sensitivity",),
    "float16_norm": ("sensitivity", "unbounded"),
    "norm_over_batch": ("sensitivity", "direction"),
    "nan_released": ("unbounded", "direction"),
    "nan_skips_step": ("silent",),
    "mean_clipped": ("sensitivity",),
    "microbatches_clipped": ("sensitivity",),
    "divided_by_nonzero": ("division", "depends"),
    "accumulated_twice": ("sensitivity",),
    "bound_of_the_batch": ("depends", "division"),
    "no_noise": ("silent",),
    "noise_without_clip": ("noise",),
    "variance_for_deviation": ("noise",),
    # its divisor is rate times the number of records, another one with the record
    "noise_of_the_mean": ("noise", "depends"),
    "laplace_noise": ("shape",),
    "uniform_noise": ("shape",),
    "truncated_noise": ("shape", "noise"),
    "one_number_of_noise": ("shared",),
    "tensors_share_noise": ("shared",),
    "noise_if_not_empty": ("silent",),
    "noise_before_clipping": ("depends", "noise", "over"),
    "few_seeds": ("repeats",),
    "same_batch_every_step": ("steps",),
    "shuffled": ("steps",),
    "momentum_before_noise": ("sensitivity",),
    "noise_negated": ("shared",),
    "noise_on_last_step": ("bare",),
}
"""Bugs of the conformance libraries that leak."""
