"""'My loader shuffles, my accountant says Poisson': the sentence that `claim` prints."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import guarantees
from audit import cli
from audit.report.claims import Setting, by_sampler, print_claims, shuffled_answer
from audit.report.shuffled import shuffled_training
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


@pytest.mark.long
def test_answer_knows_the_claims_that_the_samplers_make():
    setting = Setting(rate=0.1, noise_multiplier=0.5, steps=10, records=None, dimension=None)
    claims = [by_sampler(sampler, setting) for sampler in ("poisson", "shuffle", "shuffle-upper")]
    summaries = [summarise(claim.curve, deltas=(1e-5,)) for claim in (POISSON, LEAK, UPPER)]
    assert shuffled_answer(claims, summaries) == answer(POISSON, LEAK, UPPER)


def test_four_statements_of_one_training_and_their_answer(capsys, monkeypatch):
    """The constructors are told which training; what they promise is tested elsewhere."""
    asked = {}
    for name, mu in (("poisson_training", 0.1), ("adaptive_shuffle", 0.2), ("fixed_batch_upper", 0.3)):
        monkeypatch.setattr(
            guarantees, name, lambda name=name, mu=mu, **given: asked.update({name: given}) or named(name, mu)
        )
    words = ["claim", "--rate", "0.1", "--noise-multiplier", "2", "--steps", "20", "--shuffled", "--delta", "1e-3"]
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    assert "leaks (adaptive_shuffle); at most" in text
    epoch = {"rounds": 10, "noise_multiplier": 2.0}
    steps = {"rate": 0.1, "noise_multiplier": 2.0, "steps": 20, "relation": "zero_out"}
    assert asked == {
        "poisson_training": steps,
        "adaptive_shuffle": {**epoch, "epochs": 2},
        "fixed_batch_upper": epoch,
    }
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    epsilons = {name: row["ranges"][0]["epsilon"] for name, row in found.items()}
    two = np.sqrt(2)
    mus = {"claimed": 0.1, "leaked at least": 0.2, "guaranteed at most": 0.3 * two, "batches in order": 0.5 * two}
    assert epsilons == {name: pytest.approx(guarantees.gaussian(mu=mu).epsilon(1e-3)) for name, mu in mus.items()}


@pytest.mark.long
def test_the_answer_of_a_real_training():
    setting = Setting(rate=0.5, noise_multiplier=1.5, steps=2, records=None, dimension=None)
    found = shuffled_training(setting, deltas=(1e-3,))
    claimed, leaked, guaranteed, ordered = (row[0] for row in found.ranges.values())
    pair = guarantees.fixed_batch_shuffle(rounds=2, noise_multiplier=1.5).epsilon(1e-3)
    assert claimed.epsilon < pair < leaked.at_least < guaranteed.at_most <= ordered.at_most


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rate", "1", "--noise", "1"], "one batch per epoch is not shuffled"),
        (["--rate", "0.1", "--noise", "1", "--steps", "15"], "a multiple of 1/rate = 10"),
        (["--rate", "0.1", "--noise", "1", "--steps", "10", "--sampler", "poisson"], "takes no sampler"),
        (["--rate", "0.1"], "needs --rate and --noise-multiplier"),
    ],
)
def test_what_is_no_shuffled_training_is_refused(words, message, capsys):
    assert cli.main(["claim", "--shuffled", *words]) == 2
    assert message in capsys.readouterr().err
