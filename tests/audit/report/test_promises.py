"""Claims in words."""

import dataclasses

import pytest

from audit.record.derive import claim_part
from audit.report.promises import WORDS, covered, in_words
from guarantees import claim_from_history, gaussian, laplace, normalised_round, poisson_training


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gaussian(mu=0.5), "a Gaussian mechanism with mu 0.5"),
        (lambda: gaussian(mu=0.5).compose(4), "a Gaussian mechanism with mu 0.5, 4 times"),
        (
            lambda: poisson_training(rate=0.5, noise_multiplier=2.0, steps=3),
            "3 steps of DP-SGD on Poisson batches at sampling rate 0.5 with noise multiplier 2",
        ),
        (
            lambda: poisson_training(rate=0.5, noise_multiplier=2.0, steps=1),
            "one step of DP-SGD on Poisson batches at sampling rate 0.5 with noise multiplier 2",
        ),
        (lambda: claim_from_history([(1.1, 0.2, 1)]), "what an accountant counts for one step"),
        (lambda: claim_from_history([(1.1, 0.2, 2)]).compose(3), "what an accountant counts for 2 steps, 3 times"),
    ],
)
def test_claims_have_words(make, words):
    assert in_words(claim_part(make(), 1e-5)) == words


def test_others_are_told_by_name_and_numbers():
    claim = normalised_round(normalise_by="none", records=2, rate=0.5, noise_multiplier=1.0, dimension=3)
    told = in_words(claim_part(claim, 1e-5))
    assert told.startswith("normalised round (normalise by none, records 2, rate 0.5")
    assert "normalised_round" not in WORDS


def test_a_claim_that_counts_no_steps_covers_one_release(violation):
    """The card of a Laplace count covered 'one step'."""
    claim = claim_part(laplace(epsilon=1.0), 1e-5)
    assert covered(dataclasses.replace(violation, claim=claim, releases="update")) == "one release"


def test_a_history_of_one_step_covers_one_step_of_a_training(violation):
    """It covered 'one training' beside 'one update of train'."""
    claim = claim_part(claim_from_history([(1.1, 0.2, 1)]), 1e-5)
    assert covered(dataclasses.replace(violation, claim=claim, releases="update")) == "one step"
    whole = claim_part(claim_from_history([(1.1, 0.2, 5)]), 1e-5)
    assert covered(dataclasses.replace(violation, claim=whole, releases="transcript", steps=5)) == "one training"
