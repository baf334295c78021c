"""Questions and possible causes by code; every sentence about a cause is made here.

A measurement names a single cause only where all others known to give the same measurement are excluded. Otherwise the
answer has the codes of all, the likeliest first, and its sentence names three of them:
tests/audit/diagnosis/test_cause_sentences.py has a fault for each.

"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from audit.record.diagnosis_answer import POSSIBLE, Diagnosis

QUESTIONS = {
    "bounded": "does the record leave the outputs bounded?",
    "bare": "does every coordinate have noise?",
    "clear": "does noise hide the record on every coordinate?",
    "silent": "does every trial have noise?",
    "repeated": "is noise repeated from trial to trial?",
    "dependent": "are trials independent of each other?",
    "direction": "does the record move the sum along its gradient?",
    "shared": "is noise shared between coordinates?",
    "noise_and_batches": "does the noise depend on which records are sampled?",
    "scale_by_trial": "does the noise change from trial to trial?",
    "scale_by_record": "does the noise depend on the record?",
    "batches": "do batches vary as stated?",
    "step_moves": "does every step, given those before, show no more of the record than the claim allows a step?",
    "steps": "is the record sampled independently at every step?",
    "rate": "is the record sampled at the stated rate?",
    "ratio": "is there enough noise for the sensitivity?",
    "grain": "does the noise take too few values?",
    "tails": "does the noise end too early?",
    "normal": "is the noise normal?",
    "laplace": "is the noise Laplace?",
    "claim": "does the claim promise no more than the stated parameters allow?",
    "constant": "does the release vary?",
    "still": "does every coordinate vary?",
    "no_part": "does the record take part?",
    "same_seeds": "on the same seeds, does the record move the release by more than the claim allows?",
    "ends": "on the same seeds, is the noise that is added normal?",
    "told_noise": "is there as much noise as stated?",
    "telling_event": "does one release, or an end of a coordinate, show more than the claim allows?",
    "whole_numbers": "does the claim's curve hold for releases of this kind?",
    "l1_ratio": "is there enough Laplace noise for the movement in the l1 norm?",
}

MOST_NAMED = 3
"""Most causes that a sentence names; if there are more, it says so."""
OTHERS = "others"
"""Code for causes that nobody has listed, where the measurement leaves room for them."""
CAUSES = {
    "another_law": "the noise is not normally distributed",
    "another_rate": "the record is sampled at a different rate",
    "bare_part": "a part of the release has no noise",
    "batch_again": "one batch is used for several steps",
    "batch_bound": "the clipping bound depends on the batch",
    "batch_divisor": "the divisor depends on the batch, for example on its actual size",
    "carried_over": "sums are carried over to later steps (momentum before the noise)",
    "clipped_apart": "each tensor, or another part of the gradient, is clipped on its own",
    "clock_seed": "successive trials share a seed, for example one taken from the clock",
    "coarse_noise": "the noise has low precision or entropy",
    "correlated": "the noise is correlated on purpose (antithetic draws, momentum, a matrix mechanism, smoothing)",
    "count_divides": "the sum is divided by the number of records, which the record changes, and the noise is not",
    "counted_again": "the record is counted more than once",
    "counted_at_random": "records are left out or counted again at random",
    "counted_otherwise": "copies or augmentations of the record are not counted as stated",
    "cut": "the noise or the release is cut",
    "divided_by_little": "the release is divided by almost nothing",
    "empty_batch": "an empty batch gets no noise",
    "fixed_batches": "batches are fixed, in size or order",
    "gradients_otherwise": "gradients= gives other gradients than the code clips",
    "key_again": "a key or a draw is used more than once",
    "kept_state": "state of one trial (noise, a total, weights) is kept for the next, which must start anew",
    "l2_for_l1": "it is enough for the l2 norm, for example where gradients clipped in it get noise for an l1 bound",
    "larger_bound": "the record is clipped at a larger bound than stated",
    "less_along": "there is less noise along the gradients than beside them",
    "less_beside": "there is less noise beside the gradients than along them",
    "less_noise": "there is less noise than stated",
    "less_on_some": "these coordinates have less noise than stated",
    "more_along": "there is more noise along the gradients than beside them",
    "moves_batches": "the record changes other records' gradients, or which of them are sampled",
    "moves_others": "the record changes other records' gradients",
    "noise_of_records": "each record gets noise of its own, for example before clipping",
    "noise_of_dataset": "the noise depends on the dataset in more than its scale",
    "noise_of_batch": "the noise depends on which records are sampled, for example because one key draws both",
    "not_a_number": "its gradient is NaN and must count as zero",
    "not_laplace": "the noise does not follow the claimed Laplace law",
    "not_clipped": "the record is not clipped",
    "not_clipped_alone": "the record is clipped together with others",
    "not_of_the_sum": "part of the release is not in the noisy sum (a loss or a statistic of the batch)",
    "one_draw": "one draw is used for all of them",
    "reads_dataset": "its scale depends on the dataset",
    "one_sided": "the noise is one-sided or skewed, like absolute values of normal noise",
    "other_steps": "later steps have less noise than the first, or count the record for more or more often",
    "record_redrawn": "what the record adds is drawn again in every trial",
    "release_clipped": "the sum is clipped or normalised after the noise is added, which bounds no record on its own",
    "release_rounded": "the release is rounded after the noise",
    "rows_no_gradients": "the rows of the dataset are not the gradients (state gradients= to have those compared)",
    "scaled_apart": "these coordinates are scaled on their own, for example by another learning rate",
    "scale_redrawn": "the scale is drawn again in every trial",
    "seed_again": "a seed or a release is reused",
    "seed_of_dataset": "the seed is made from the dataset",
    "sharp_choice": "a choice, or an answer of few values, follows the data more closely than the claim allows",
    "spent_on_each": "each number of the release spends the budget by itself",
    "sum_clipped": "the sum is clipped",
    "sum_elsewhere": "batches move the sum outside the span of the gradients",
    "sum_scaled": "the sum is scaled before the noise is added, for example to a mean over the batch",
    "taken_back": "later steps subtract what an earlier step added",
    "turns": "records take turns",
    "uneven": "coordinates have noise of different scales",
    "weight_redrawn": "the record's weight is drawn again in every trial",
}


def _words(code: str, known: Mapping[str, str], table: str) -> str:
    """The words of a code; a LookupError says where to add missing ones."""
    if code not in known:
        raise LookupError(f"a diagnosis uses the code {code!r}, which has no words; add it to {table} in {__file__}.")
    return known[code]


def sentence(measured: str, causes: tuple[str, ...]) -> str:
    """State what was measured and its cause or, where there may be several, the likeliest ones."""
    if not causes:
        return f"{measured}."
    listed = [_words(cause, CAUSES, "CAUSES") for cause in causes if cause != OTHERS]
    if OTHERS in causes or len(listed) > MOST_NAMED:
        return f"{measured}. {POSSIBLE}, among others: {'; '.join(listed[:MOST_NAMED])}."
    return f"{measured}: {listed[0]}." if len(listed) == 1 else f"{measured}. {POSSIBLE}: {'; '.join(listed)}."


def noise_deviations(number: float) -> str:
    """A number of noise deviations in words, in two digits."""
    return f"{number:.2g} noise deviation{'' if f'{number:.2g}' == '1' else 's'}"


def consequence(found: Diagnosis, follows: str) -> Diagnosis:
    """Reword a 'wrong' answer as one that follows from another answer and accuses nothing by itself."""
    measured = found.says.removesuffix(sentence("", found.causes))
    says = f"{measured}. This follows from the answer to {_words(follows, QUESTIONS, 'QUESTIONS')!r}"
    return dataclasses.replace(found, says=f"{says}.", causes=(), follows=follows)


def answer(
    code: str,
    *,
    measured: str,
    risk: float,
    assumes: str,
    p_value: float | None = None,
    wrong: bool | None = None,
    causes: tuple[str, ...] = (),
    estimate: float | None = None,
    interval: tuple[float, float] | None = None,
) -> Diagnosis:
    """Build the answer to a question: 'wrong' by default if the p-value is below the risk; else without causes."""
    wrong = p_value is not None and p_value < risk if wrong is None else wrong
    kept = causes if wrong else ()
    return Diagnosis(
        code=code,
        question=_words(code, QUESTIONS, "QUESTIONS"),
        wrong=wrong,
        says=sentence(measured, kept),
        causes=kept,
        p_value=p_value,
        risk=risk,
        assumes=assumes,
        estimate=estimate,
        interval=interval,
    )
