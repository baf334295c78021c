import math
import random

import pytest
from scipy.optimize import root_scalar

from guarantees.numerics.root import root

FUNCTIONS = {
    "bent": lambda x, a, b: math.tanh(b * (x - a)) + 0.1,
    "flat": lambda x, a, b: (x - a) ** 3 + 1e-3 * b,
    "steep": lambda x, a, _: math.expm1(x - a),
    "tiny": lambda x, a, b: 1e-160 * (math.exp(-b * x) - math.exp(-b * a)),
    "a jump": lambda x, a, _: float(x > a) - 0.5,
    "at an end": lambda x, a, _: x - a,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("tolerance", [(2e-12, 2.0**-50), (1e-9, 1e-7)])
def test_roots_are_those_of_scipy_to_the_last_bit(name, tolerance):
    draw = random.Random(name)
    absolute, relative = tolerance
    for _ in range(100):
        a, b = draw.uniform(-3, 3), draw.uniform(0.1, 5)
        low, high = a - draw.uniform(0.3, 9) * (name != "at an end"), a + draw.uniform(1, 9)

        def function(x, a=a, b=b):
            return FUNCTIONS[name](x, a, b)

        if function(low) * function(high) > 0:
            continue
        theirs = root_scalar(function, bracket=(low, high), xtol=absolute, rtol=relative).root
        assert root(function, low, high, absolute=absolute, relative=relative) == theirs


def test_one_sign_at_both_ends_is_refused():
    with pytest.raises(ValueError, match=r"different signs at 1\.0 and 2\.0"):
        root(lambda x: x, 1.0, 2.0)
