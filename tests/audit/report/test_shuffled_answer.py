"""'My loader shuffles, my accountant says Poisson': the sentence that `claim` prints."""

from __future__ import annotations

import dataclasses

import pytest

import guarantees
from audit.report.claims import Setting, by_sampler, print_claims, shuffled_answer
from guarantees.summary import summarise


def named(name, mu, steps=100, noise=2.0):
    parameters = {"noise_multiplier": noise, "rounds": steps}
    return dataclasses.replace(guarantees.gaussian(mu=mu), name=name, steps=steps, parameters=parameters)


POISSON, LEAK, UPPER = (
    named("poisson_training", 0.1),
    named("fixed_batch_shuffle", 0.2),
    named("fixed_batch_upper", 0.5),
)


def answer(*claims):
    return shuffled_answer(list(claims), [summarise(claim.curve, deltas=(1e-5,)) for claim in claims])


def test_answer_names_what_is_broken_what_leaks_and_what_is_guaranteed():
    (line,) = answer(UPPER, POISSON, LEAK)
    said, leak, upper = (claim.epsilon(1e-5) for claim in (POISSON, LEAK, UPPER))
    assert f"delta 1e-05: Poisson's epsilon {said:.4g} is broken; at least {leak:.4g} leaks" in line
    assert f"at most {upper:.4g} is guaranteed" in line


def test_answer_is_not_broken_where_the_leak_is_smaller_and_asks_for_the_guarantee():
    (line,) = answer(POISSON, named("fixed_batch_shuffle", 0.05))
    assert "no promise about them" in line
    assert "broken" not in line
    assert line.endswith("add --sampler shuffle-upper for what is guaranteed.")


@pytest.mark.parametrize(
    "claims",
    [
        (LEAK, UPPER),
        (POISSON,),
        (POISSON, named("fixed_batch_upper", 0.5, steps=7)),
        (POISSON, named("fixed_batch_upper", 0.5, noise=3.0)),
    ],
)
def test_no_answer_without_one_training_in_both_forms(claims):
    assert answer(*claims) == []


def test_command_prints_it(capsys):
    claims = [POISSON, UPPER]
    print_claims(claims, [summarise(claim.curve, deltas=(1e-5,)) for claim in claims])
    assert "Batches of a shuffled loader" in capsys.readouterr().out


def test_answer_knows_the_claims_that_the_samplers_make():
    setting = Setting(rate=0.1, noise_multiplier=0.5, steps=10, records=None, dimension=None)
    claims = [by_sampler(sampler, setting) for sampler in ("poisson", "shuffle", "shuffle-upper")]
    summaries = [summarise(claim.curve, deltas=(1e-5,)) for claim in (POISSON, LEAK, UPPER)]
    assert shuffled_answer(claims, summaries) == answer(POISSON, LEAK, UPPER)
