"""Which words are offered for a misspelt one."""

import pytest

from dpsgd_audit.spelling import did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("trails", ["trials", "risk"], "trials"),
        ("noise", ["clip", "noise_multiplier"], "noise_multiplier"),
        ("dimensions", ["dimension", "records"], "dimension"),
        ("relation", ["epsilon", "sensitivity"], None),
        ("nosuch", ["os", "np", "sys"], None),
        ("a", ["alpha", "delta"], None),
    ],
)
def test_a_word_is_offered_that_is_like_it_or_begins_as_it_does(word, known, meant):
    assert did_you_mean(word, known) == (f" (did you mean {meant!r}?)" if meant else "")
