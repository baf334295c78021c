"""diffprivlib: two mechanisms, and LinearRegression.

Promise (mechanisms/laplace.py, mechanisms/gaussian.py): 'Privacy parameter epsilon for the mechanism'. LinearRegression
(models/linear_regression.py): 'Ordinary least squares Linear Regression with differential privacy'.
A record of LinearRegression is (x, y).
"""

import warnings

import numpy as np
from diffprivlib.mechanisms import GaussianAnalytic, Laplace
from diffprivlib.models import LinearRegression

warnings.simplefilter("ignore")


def laplace(seed, rows):
    return [Laplace(epsilon=1.0, sensitivity=1.0, random_state=seed % 2**32).randomise(float(rows.sum()))]


def gaussian(seed, rows):
    mechanism = GaussianAnalytic(epsilon=1.0, delta=1e-5, sensitivity=1.0, random_state=seed % 2**32)
    return [mechanism.randomise(float(rows.sum()))]


def _regression(seed, rows, low):
    x, y = rows[:, :1].astype(float), rows[:, 1].astype(float)
    model = LinearRegression(
        epsilon=1.0, bounds_X=(low, 100.0), bounds_y=(0.0, 1.0), fit_intercept=False, random_state=seed % 2**32
    )
    # a coefficient may be enormous: its logarithm and sign say the same
    slope = float(np.ravel(model.fit(x, y).coef_)[0])
    return [np.sign(slope) * np.log1p(abs(slope))]


def regression(seed, rows):
    return _regression(seed, rows, 0.0)


def regression_symmetric(seed, rows):
    """The same with bounds of equal size, where the lower bound alone is enough."""
    return _regression(seed, rows, -100.0)
