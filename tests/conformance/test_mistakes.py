"""What an author writes wrongly is refused by name before anything is drawn, and never taken for a leak."""

import numpy as np
import pytest

from audit.conformance import STEP_CASES, TRAINING_CASES, SubsampledGaussianConformance
from audit.conformance.cases import FEWEST
from audit.conformance.library import Form, LibraryStep


def right(seed, gradients):
    return gradients.sum(0) + np.random.default_rng(seed).normal(size=gradients.shape[1])


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"library": "nunpy"}, "library of Own must be one of .*, got 'nunpy'"),
        ({"library": "numpy", "tensors": [(4, 6), (6,)]}, "tensors of Own must be a dict of shapes by name"),
        ({"library": "numpy", "make_step": lambda self, **_: None}, "what Own.make_step returns must be a function"),
    ],
)
def test_a_class_that_is_written_wrongly_is_refused(own, message):
    class Own(SubsampledGaussianConformance):
        def make_step(self, **settings):
            return right

    for name, value in own.items():
        setattr(Own, name, value)
    with pytest.raises(ValueError, match=message):
        Own().test_a_step_keeps_its_promise(dp_audit=None, case="dense")


def test_numpy_code_that_is_taken_for_jax_is_told_of_the_word_library():
    form = Form(tensors=None, dimension=3, steps=None)
    step = LibraryStep(step=right, form=form, library="jax", settings={})
    with pytest.raises(TypeError, match="other code says library = 'numpy' or 'torch'"):
        step.prepare(np.ones((2, 3)))(np.zeros(1, np.uint64))


@pytest.mark.parametrize("stated", [2, 1000, FEWEST, 3002, 10_000, 99_998])
def test_a_case_takes_an_even_part_of_the_trials_and_never_few_of_many(stated):
    for case in (*STEP_CASES.values(), *TRAINING_CASES.values()):
        trials = case.trials(stated)
        assert trials % 2 == 0
        assert min(stated, FEWEST) <= trials <= stated
        assert trials <= max(FEWEST, case.part * stated)
