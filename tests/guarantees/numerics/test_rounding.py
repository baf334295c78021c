"""Printed bounds say no more than is proven."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarantees.numerics.rounding import at_least, at_most, between

FORMS = st.sampled_from([".2f", ".3f", ".4f", ".3g", ".4g"])


def test_lower_bounds_lose_digits_downwards():
    assert at_least(5.996) == "5.99"
    assert at_least(4.2999, ".2f") == "4.29"
    assert at_least(0.3) == "0.3"
    assert at_least(float("inf")) == "inf"


def test_an_interval_never_shrinks():
    assert between(1.2349, 1.2341, ".3g") == "1.23 to 1.24"


def test_upper_limits_lose_digits_upwards():
    assert at_most(0.12341, ".4g") == "0.1235"
    assert at_most(0.3, ".4f") == "0.3000"


@given(value=st.floats(-1e6, 1e6), form=FORMS)
def test_the_printed_number_lies_on_its_side_and_within_a_unit_of_the_last_digit(value, form):
    slack = 1e-11 * abs(value)
    low, high, nearest = (float(text) for text in (at_least(value, form), at_most(value, form), format(value, form)))
    assert low <= value + slack
    assert high >= value - slack
    unit = 10.0 ** -int(form[1]) * (1 if form[-1] == "f" else 10 * max(abs(value), 1e-300))
    assert nearest - unit - slack <= low <= high <= nearest + unit + slack


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, math.nan])
def test_what_needs_no_rounding_stays(value):
    assert at_least(value, ".3f") == at_most(value, ".3f") == f"{value:.3f}"


@pytest.mark.parametrize("form", [".3f", ".3g"])
@pytest.mark.parametrize("value", [3, np.float32(0.25), np.int64(4), np.float64(0.5), 1e300, -1e300, 1e-300])
def test_numbers_of_every_kind_and_size_are_written(value, form):
    slack = 1e-11 * abs(float(value))
    assert float(at_least(value, form)) <= value + slack
    assert float(at_most(value, form)) >= value - slack


@pytest.mark.parametrize("form", [".3f", ".3g"])
def test_no_minus_stands_before_a_zero(form):
    assert at_least(-0.0, form) == at_most(-0.0, form) == format(0.0, form)
    assert at_most(-1e-9, ".3f") == "0.000"
