"""'My loader shuffles, my accountant says Poisson': the sentence that `claim` prints."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

import guarantees
from audit import cli
from audit.report.claims import Setting, by_sampler, one_a_line, print_claims, shuffled_answer
from audit.report.shuffled import shuffled_training
from audit.report.stated import Stated
from audit.suites.claim_names import claim_from_text
from guarantees.numerics.rounding import at_most
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
    assert said < 0.3407 == pytest.approx(said, abs=1e-4)
    assert leak > 0.7255 == pytest.approx(leak, abs=1e-4)
    assert upper < 1.994 == pytest.approx(upper, abs=1e-3)
    assert "delta 1e-05: Poisson's epsilon 0.3407 is broken; at least 0.7255 leaks" in line
    assert "at most 1.994 is guaranteed" in line


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
    assert asked["poisson_training"].pop("accountant") in ("pld", "certified")
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


EPSILON = guarantees.gaussian(mu=0.1).epsilon(1e-3)
MOST = at_most(EPSILON, ".4g")


@pytest.mark.parametrize(
    ("stated", "code", "says"),
    [
        ("0.9", 0, "on shuffled batches it holds"),
        (
            "0.4",
            3,
            f"on Poisson batches it holds (epsilon is at most {MOST}); on shuffled batches nobody knows",
        ),
        (
            "0.3",
            1,
            f"on Poisson batches it holds (epsilon is at most {MOST}); on shuffled batches it does not hold (at",
        ),
        (
            "0.1",
            1,
            f"on Poisson batches it is not promised (epsilon is {MOST}); on shuffled batches it does not hold",
        ),
    ],
)
def test_whether_a_stated_epsilon_holds_is_said_for_both_samplers(capsys, monkeypatch, stated, code, says):
    """By the words of a paper: 256 of 60,000, 20 epochs, which is 4,700 steps."""
    asked = {}
    for name, mu in (("poisson_training", 0.1), ("adaptive_shuffle", 0.15), ("fixed_batch_upper", 0.05)):
        monkeypatch.setattr(
            guarantees, name, lambda name=name, mu=mu, **given: asked.update({name: given}) or named(name, mu)
        )
    training = ["--batch", "256", "--records", "60000", "--epochs", "20", "--noise-multiplier", "0.8"]
    words = ["claim", *training, "--shuffled", "--delta", "1e-3", "--stated", stated]
    assert cli.main(words) == code
    said = " ".join(capsys.readouterr().out.split())
    assert f"Stated epsilon {stated} at delta 0.001: " in said
    assert says in said
    assert "Computed for 235 batches of one size" in said
    assert asked["poisson_training"]["rate"] == 256 / 60_000
    assert asked["poisson_training"]["steps"] == 4_700
    assert asked["fixed_batch_upper"]["rounds"] == 235


def test_a_stated_epsilon_is_answered_by_each_claim(capsys):
    words = ["claim", "subsampled_gaussian(rate=256/60000, noise_multiplier=1)", "gaussian(mu=1)", "--delta", "1e-5"]
    assert cli.main([*words, "--stated", "2", "--json"]) == 1
    one, whole = (row["stated"] for row in json.loads(capsys.readouterr().out))
    assert one.endswith("it holds (epsilon is at most 0.06777).")
    assert whole == "Stated epsilon 2 at delta 1e-05, judged by gaussian(mu=1): it is not promised (epsilon is 4.378)."
    assert cli.main([*words, "--stated", "2"]) == 1
    assert "it is not promised (epsilon is 4.378)." in capsys.readouterr().out
    (leak,) = Stated(epsilon=8.0, delta=1e-5).by_each([named("fixed_batch_shuffle", 1.0)])
    assert "it is not refuted (at least 4.377 leaks), and not promised either" in leak.says
    assert leak.code == 3


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-5), (2, 1e-8), (4.582, 1e-6)])
def test_a_table_promises_its_own_rows(epsilon, delta):
    claim = guarantees.claim_from_table(points=((epsilon, delta),))
    (answer,) = Stated(epsilon=epsilon, delta=delta).by_each([claim])
    assert (answer.code, "it holds" in answer.says) == (0, True), answer.says


def test_an_epsilon_that_was_rounded_down_is_not_promised():
    (answer,) = Stated(epsilon=4.377, delta=1e-5).by_each([guarantees.gaussian(mu=1.0)])
    assert answer.says.endswith("it is not promised (epsilon is 4.378).")
    (answer,) = Stated(epsilon=4.4, delta=1e-5).by_each([guarantees.gaussian(mu=1.0)])
    assert answer.says.endswith("it holds (epsilon is at most 4.378).")


def test_fractions_are_rates_and_other_sums_are_refused_by_name(capsys):
    assert claim_from_text("subsampled_gaussian(rate=1/4, noise_multiplier=1)").parameters["rate"] == 0.25
    with pytest.raises(ValueError, match=r"^rate of poisson_training must be a number, a fraction .* got '1 \+ 2'\.$"):
        claim_from_text("poisson_training(rate=1+2, noise_multiplier=1, steps=2)")
    with pytest.raises(SystemExit):
        cli.main(["claim", "--rate", "1/0", "--noise", "1"])
    assert "must be a number or a fraction such as 256/60000, got '1/0'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gaussian(mue=1)", "gaussian has no 'mue' (did you mean 'mu'?). It takes mu, relation."),
        ("gaussian(1)", "gaussian needs mu, each number by its name: gaussian(mu=...)."),
        ("gaussian(1, mu=1)", "gaussian takes mu, relation, each once and by its name."),
        ("subsampled_gaussian(rate=0.1)", "needs noise_multiplier: subsampled_gaussian(noise_multiplier=...)."),
        ("gaussian(mu=1, relatoin='zero_out')", "has no 'relatoin' (did you mean 'relation'?). It takes mu, "),
    ],
)
def test_a_claim_with_other_words_is_told_which_it_needs_without_a_signature(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        claim_from_text(text)


def test_an_infinite_mu_has_no_regret(capsys):
    assert cli.main(["claim", "epsilon_delta(epsilon=8, delta=1e-5)", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["regret"] is None
    assert cli.main(["claim", "epsilon_delta(epsilon=8, delta=1e-5)"]) == 0
    assert re.search(r"regret of reporting that mu\s+│\s+- │", capsys.readouterr().out)


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
        (["--rate", "0.1", "--noise", "1", "--steps", "15"], "a multiple of the 10 batches an epoch"),
        (["--rate", "0.1", "--noise", "1", "--steps", "10", "--sampler", "poisson"], "without --sampler"),
        (["--rate", "0.1"], "needs --rate (or --batch and --records) and --noise-multiplier"),
        (["--batch", "256", "--noise", "1"], "--batch needs --records"),
        (["--batch", "256", "--records", "99", "--noise", "1"], "--batch needs --records of at least that number"),
        (["--batch", "1", "--records", "9", "--rate", "0.1"], "give --rate, or --batch and --records, not both"),
        (["--rate", "0.1", "--noise", "1", "--epochs", "1", "--steps", "10"], "give --epochs or --steps, not both"),
        (["--rate", "0.1", "--noise", "1", "--stated", "8"], "give --delta once"),
        (["--rate", "0.1", "--noise", "1", "--stated=-1", "--delta", "1e-5"], "--stated must be >= 0"),
    ],
)
def test_what_is_no_shuffled_training_is_refused(words, message, capsys):
    assert cli.main(["claim", "--shuffled", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("stated", "holds"), [(4.3773, True), (4.3771, False), (4.37717, False)])
def test_the_number_beside_a_stated_one_is_written_so_that_it_shows_on_which_side_it_lies(stated, holds):
    """Epsilon of 1-GDP at delta 1e-5 is 4.377178..., which four digits write as 4.378, above what holds."""
    found = guarantees.gaussian(mu=1.0).epsilon_range(1e-5)
    assert (found.epsilon <= stated) == holds
    asked = Stated(epsilon=stated, delta=1e-5)
    said = (asked.promised(found) if holds else asked.leaked(found)).says
    (shown,) = (float(number) for number in re.findall(r"\d+\.\d+", said))
    assert said.startswith("it holds" if holds else "it does not hold")
    assert (shown <= stated) == holds


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        ("gaussian(mu=1)", ["gaussian(", "mu=1)"]),
        (
            "claim_from_table(points=((3.0, 1e-05), (2.0, 0.001)), unit='step')",
            ["points=((3.0, 1e-05), (2.0, 0.001)),"],
        ),
        ("renyi(orders=[2.0, 4.0], epsilons=[0.1, 0.2])", ["orders=[2.0, 4.0],", "epsilons=[0.1, 0.2])"]),
        ("laplace(epsilon=1).compose(3)", ["epsilon=1).compose(", "3)"]),
    ],
)
def test_the_head_of_a_column_has_one_argument_a_line(call, lines):
    written = one_a_line(call)
    assert written.replace(",\n", ", ").replace("\n", "") == call
    assert set(lines) <= set(written.splitlines())
