"""The test against the exact law: how often a right library fails it, and what each wrong one is told."""

import numpy as np
import pytest
from checks import assert_rate_at_most

from audit.conformance import law
from audit.conformance.library import Form, LibraryStep
from conformance import numpy_library
from conformance.bugs import BUGS, DIFFERS
from conformance.classes import TENSORS

CLIP = 2.0


def verdict(bug="", *, steps=None, trials=1000, first=0):
    settings = {"rate": law.RATE, "clip": CLIP, "noise_multiplier": law.NOISE}
    run = numpy_library.step if steps is None else numpy_library.training
    form = Form(tensors=TENSORS, dimension=30, steps=steps)
    step = LibraryStep(
        step=lambda seed, given: run(seed, given, **settings, bug=bug), form=form, library="numpy", settings=settings
    )
    given = law.gradients(30, CLIP, steps or 1)
    parts = step.prepare(given.reshape(len(given), -1))(np.arange(first, first + trials, dtype=np.uint64))
    outputs = np.concatenate(list(parts.values()), axis=-1).reshape(trials, steps or 1, 30)
    return law.judge(outputs, given, clip=CLIP)


@pytest.mark.parametrize("steps", [None, 3])
def test_a_right_library_is_the_mechanism_stated(steps):
    assert verdict(steps=steps).p_value > 1e-6


@pytest.mark.few(1)
@pytest.mark.parametrize("bug", [name for name, bug in BUGS.items() if bug.verdict == DIFFERS])
def test_what_does_not_leak_is_told_from_the_mechanism_stated(bug):
    assert verdict(bug, steps=3).p_value < 1e-9


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("bug", "said"),
    [
        ("too_much_noise", "the noise has another size"),
        ("rate_too_small", "taken at another rate"),
        ("laplace_noise", "the noise is not normal"),
        ("reseeded_every_step", "two steps"),
        ("last_record_dropped", "record 5 is taken at another rate"),
        ("far_dropped", "record 5 is taken at another rate"),
        ("equal_counted_once", "equal records (1 to 2) are not all counted"),
    ],
)
def test_the_worst_statistic_says_what_is_wrong(bug, said):
    assert said in verdict(bug, steps=3).worst.what


@pytest.mark.long
@pytest.mark.parametrize("steps", [None, 3])
def test_the_p_value_of_a_right_library_is_not_below_uniform(steps):
    found = np.array([verdict(steps=steps, trials=200, first=1000 * i).p_value for i in range(300)])
    for level in (0.01, 0.05):
        assert_rate_at_most(int(np.sum(found <= level)), len(found), level)
