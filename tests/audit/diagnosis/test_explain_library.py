"""What a replay says of a small library's bugs is true, and the wrong line is among its lines."""

from __future__ import annotations

import jax
import pytest
from diagnosis import library

from audit.diagnosis.explain import Kind, explain


def told(bug=""):
    return explain(library.step(bug), library.pair(), key=jax.random.key(3))


def test_nothing_is_said_of_the_right_library():
    explanation = told()
    assert explanation.findings == ()
    assert explanation.rounds[0].multiplier == pytest.approx(library.NOISE, rel=0.01)


def test_an_inverted_clip_is_named_and_no_line_of_the_model_is_said_to_bound():
    (found,) = told("inverted").findings
    assert found.kind == Kind.NOT_CLIPPED
    assert found.lines[0] == library.wrong_line("inverted")
    assert "The rest of the record is bounded" not in found.says
    assert found.says.endswith("does not bound it.")


def test_a_record_repeated_by_padding_is_no_sum_that_is_clipped():
    (found,) = told("padded").findings
    assert found.kind == Kind.TOO_LITTLE_NOISE
    assert "(a batch holds a record more than once: library.py:" in found.says
    path, line = library.wrong_line("padded")
    assert found.lines[0] in {(path, line), (path, line + 1)}


@pytest.mark.long
def test_the_call_that_hands_over_the_noises_scale_stands_before_the_helper():
    (found,) = told("scale_handed").findings
    assert found.kind == Kind.TOO_LITTLE_NOISE
    assert found.lines[0] == library.wrong_line("scale_handed")
    assert f"(called at library.py:{found.lines[0][1]})" in found.says


@pytest.mark.long
def test_leaves_that_are_clipped_one_by_one_exceed_the_stated_norm_at_the_clipping():
    (found,) = told("per_leaf").findings
    assert found.kind == Kind.TOO_LITTLE_NOISE
    assert found.lines[0] == library.wrong_line("per_leaf")
    assert "more than the stated bound of 0.5" in found.says


def test_noise_from_a_constant_key_is_named_with_the_keys_line():
    (found,) = told("constant_key").findings
    assert found.kind == Kind.RELEASED_WITHOUT_NOISE
    assert found.lines[0] == library.wrong_line("constant_key")
    assert f"from the constant key of library.py:{found.lines[0][1]}" in found.says


def test_initial_weights_from_a_constant_key_are_not_taken_for_its_noise():
    (found,) = told("no_noise").findings
    assert found.kind == Kind.RELEASED_WITHOUT_NOISE
    assert "constant key" not in found.says
