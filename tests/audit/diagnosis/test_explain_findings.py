"""What an explanation says and in which order; nothing is traced here."""

from __future__ import annotations

import dataclasses
import inspect

import jax
import pytest

from audit.diagnosis.explain import Covered, Explanation, Kind, Round, explain
from audit.diagnosis.explain.dispatch import promised
from audit.diagnosis.explain.findings import NEVER_SEEN, NOT_SEEN, NOTHING_STATED, ranked
from audit.diagnosis.explain.places import NOWHERE, place
from audit.diagnosis.explain.sentences import SENTENCES, found, not_followed, too_little
from audit.trials.library_files import is_library
from guarantees import claim_from_history
from mechanisms import command_step, worst_case_pair

USER = place([("/home/me/train.py", 12), ("/home/me/main.py", 3)])


def test_every_kind_has_a_sentence():
    assert set(SENTENCES) == set(Kind)


def test_lines_begin_with_the_users_own_and_end_with_the_librarys():
    where = place([(jax.__file__, 7), ("/home/me/train.py", 12), (jax.__file__, 9), ("/home/me/main.py", 3)])
    assert where.library == ((jax.__file__, 7),)
    told = found(Kind.RELEASED_WITHOUT_NOISE, leaf="'bias'", at=where, others="")
    assert told.lines == (("/home/me/train.py", 12), ("/home/me/main.py", 3), (jax.__file__, 7))
    assert told.says == "'bias' is released without noise: it comes from train.py:12 (in __init__.py:7)."


def test_a_generator_on_a_line_does_not_hide_the_callers():
    stack = [("/home/me/clip.py", 6), ("/home/me/clip.py", 6), ("/home/me/clip.py", 11), ("/home/me/clip.py", 23)]
    assert place(stack).own == (("/home/me/clip.py", 6), ("/home/me/clip.py", 11), ("/home/me/clip.py", 23))


def test_python_and_this_toolkit_are_no_lines_of_the_users():
    assert is_library(pytest.__file__)
    assert is_library("<frozen importlib._bootstrap>")
    assert is_library(place.__code__.co_filename)
    assert not is_library(__file__)


def test_a_line_of_this_toolkit_does_not_stand_beside_the_users():
    ours = place.__code__.co_filename
    assert place([(ours, 94), ("/home/me/train.py", 12)]).library == ()
    assert place([(ours, 94)]).library == ((ours, 94),)


def test_a_cause_stands_before_its_consequence_and_silences_too_little_noise():
    little = too_little(
        lead=USER,
        at=USER,
        origin=USER,
        draw=USER,
        sensitivity=2.0,
        more="",
        deviation=1.0,
        multiplier=0.5,
        stated=1.0,
    )
    bare = found(Kind.RELEASED_WITHOUT_NOISE, leaf="'w'", at=USER, others="")
    twice = found(Kind.KEY_USED_TWICE, first=USER, second=USER, how="")
    clip = found(Kind.NOT_CLIPPED, scale=50.0, times=50.0, leaves="", made="summed", at=USER, origin=USER)
    assert [one.kind for one in ranked([little, bare, twice, bare])] == [twice.kind, bare.kind, little.kind]
    assert [one.kind for one in ranked([little, clip])] == [Kind.NOT_CLIPPED]


def test_nothing_found_is_never_called_private_and_says_what_is_not_seen():
    text = str(Explanation(covered=Covered(draws=2, releases=1, opaque=("a callback at train.py:3",))))
    assert "does not show that the code is private" in text
    assert "a callback at train.py:3" in text
    assert "\n".join(text.splitlines()[-1:]) == NEVER_SEEN
    told = " ".join(inspect.getdoc(explain).split())
    assert all(what in told for what in NOT_SEEN)
    assert "Followed: random numbers drawn at 2 places of the code, noise added to data at 1 place." in text


@pytest.mark.parametrize(("stated", "told"), [(1.0, "the noise is as large in proportion"), (None, "was not judged")])
def test_a_bound_that_is_exceeded_is_told_with_what_was_judged_of_the_noise(stated, told):
    rounds = (Round(number=1, sensitivity=2.0, noise_deviation=2.0, multiplier=1.0),)
    said = str(Explanation(rounds=rounds, bound=1.0, stated=stated))
    assert "moves a release by 2 where the stated clipping norm allows 1 (" in said
    assert told in said


def test_multipliers_that_nothing_was_stated_of_are_said_to_be_compared_with_nothing():
    rounds = (Round(number=1, sensitivity=1.0, noise_deviation=0.5, multiplier=0.5),)
    assert NOTHING_STATED in str(Explanation(rounds=rounds))
    assert NOTHING_STATED not in str(Explanation(rounds=rounds, stated=0.5))
    assert NOTHING_STATED not in str(Explanation())


def test_noise_of_an_unknown_law_has_no_multiplier_unless_one_is_stated():
    rounds = (Round(number=1, sensitivity=1.0, noise_deviation=0.5, multiplier=0.5, exact=False),)
    assert "      1            1                ?           ?  (the law of its noise is not known)" in str(
        Explanation(rounds=rounds)
    )
    assert "0.5         0.5  (deviation estimated)" in str(Explanation(rounds=rounds, stated=0.5))


def test_a_terminal_shows_the_kind_the_lines_and_the_rounds():
    told = Explanation(
        findings=(found(Kind.RANDOMNESS_FROM_DATA, draw=USER, origin=""), not_followed("a loop depends on data", USER)),
        rounds=(Round(number=1, sensitivity=2.0, noise_deviation=3.0, multiplier=1.5),),
    )
    text = str(told)
    assert text.startswith(
        "randomness_from_data at train.py:12\n  The random numbers drawn at train.py:12 depend on the data."
    )
    assert "\n    /home/me/train.py:12\n" in text
    assert "Not judged: a loop depends on data." in text
    assert "      1            2                3         1.5" in text
    assert [one.kind for one in told.suspicions] == [Kind.RANDOMNESS_FROM_DATA]


def test_two_draws_that_one_line_gives_the_same_key_are_one_finding():
    lead, draws = ("/home/me/train.py", 12), [("/home/me/noise.py", 3), ("/home/me/batches.py", 7)]
    told = [
        found(Kind.KEY_USED_TWICE, first=place([draw]), second="the same line", how=" (each time)") for draw in draws
    ]
    told = [dataclasses.replace(one, lines=(lead, *one.lines)) for one in told]
    (both,) = ranked(told)
    assert both.lines == (lead, *draws)
    assert both.says == f"{told[0].says} The same holds for batches.py:7."
    other = dataclasses.replace(told[1], lines=(("/home/me/train.py", 20), *told[1].lines[1:]))
    assert len(ranked([told[0], other])) == 2


def test_a_place_that_is_not_known_is_said_to_be():
    assert "an unknown line" in found(Kind.RELEASED_WITHOUT_NOISE, leaf="'w'", at=NOWHERE, others="").says


def test_a_program_in_another_language_is_not_covered():
    told = explain(
        command_step(command=["true"]), worst_case_pair(records=2, dimension=2, clip=1.0), key=jax.random.key(0)
    )
    assert [one.kind for one in told.findings] == [Kind.NOT_FOLLOWED]
    assert "command_step" in told.findings[0].says
    assert told.of_this_code == told.findings[0].says


def test_a_history_with_one_noise_multiplier_states_it():
    assert promised(claim_from_history([(1.5, 0.5, 3), (1.5, 0.25, 2)])) == 1.5
    assert promised(claim_from_history([(1.5, 0.5, 3), (1.0, 0.5, 2)])) is None


def test_a_round_says_which_deviation_it_shows_and_what_does_not_move():
    told = Round(number=1, sensitivity=1.0, noise_deviation=2.5, multiplier=2.5, average=2.0)
    assert "2.5  (in the direction of the record's change; 2 on average)" in str(Explanation(rounds=(told,)))
    still = Round(number=1, sensitivity=0.0, noise_deviation=2.0, multiplier=float("inf"), average=2.0)
    assert "inf  (the same with and without the record)" in str(Explanation(rounds=(still,)))


def test_laplace_noise_is_shown_with_its_epsilon():
    told = Round(number=1, sensitivity=1.0, noise_deviation=1.414, multiplier=1.414, epsilon=1.0)
    shown = str(Explanation(rounds=(told,), epsilon=1.0)).splitlines()
    assert [line.split()[-1] for line in shown if "sensitivity" in line or line.split()[0] == "1"] == ["epsilon", "1"]
