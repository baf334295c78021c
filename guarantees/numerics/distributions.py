"""The distributions that audits use, from scipy.special: importing scipy.stats takes longer than some commands.

Each answers as its namesake in today's scipy.stats does, to the last bit. Those asked seldom are scipy.stats' own,
imported when one is first asked.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from guarantees.numerics.array import Array


@dataclasses.dataclass(frozen=True)
class Distribution:
    """A distribution of scipy.stats by its name, imported on first use."""

    name: str

    def _own(self) -> Any:
        return getattr(importlib.import_module("scipy.stats"), self.name)

    def __call__(self, *parameters: Any) -> Any:
        """The distribution with these parameters."""
        return self._own()(*parameters)

    def __getattr__(self, question: str) -> Any:
        """A method of the distribution, such as ``cdf`` or ``ppf``."""
        if question.startswith("__"):
            raise AttributeError(question)
        return getattr(self._own(), question)


class _Quick:
    """A distribution of scipy.stats with fast versions of its usual methods; all other methods are scipy.stats' own."""

    def __init__(self, name: str):
        self._others = Distribution(name)

    def __getattr__(self, question: str) -> Any:
        """Any other method of scipy.stats' distribution, such as ``median``."""
        if question.startswith("_"):
            raise AttributeError(question)
        return getattr(self._others, question)


def _binomial(question: str) -> Any:
    """Boost's function, which scipy.special has under a private name; where it lacks it, the one of scipy.stats."""
    ufuncs = importlib.import_module("scipy.special._ufuncs")
    return getattr(ufuncs, f"_binom_{question}", None) or getattr(Distribution("binom"), question)


class Binomial(_Quick):
    """Successes among ``n`` trials of probability ``p``."""

    def pmf(self, k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Any:
        """P(K = k)."""
        k, n, p = np.asarray(k, float), np.asarray(n), np.asarray(p, float)
        inside = (k >= 0) & (k <= n) & (k == np.floor(k))
        found = np.clip(_binomial("pmf")(np.where(inside, k, 0.0), n, p), 0.0, 1.0)
        return np.where(inside, found, 0.0)[()]

    def logpmf(self, k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Any:
        """ln P(K = k), for k from 0 to n."""
        k, n, p = np.asarray(k, float), np.asarray(n), np.asarray(p, float)
        choices = special.gammaln(n + 1) - (special.gammaln(k + 1) + special.gammaln(n - k + 1))
        return (choices + special.xlogy(k, p) + special.xlog1py(n - k, -p))[()]

    def cdf(self, k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Any:
        """P(K <= k)."""
        k, n, p = np.floor(np.asarray(k, float)), np.asarray(n), np.asarray(p, float)
        inside = (k >= 0) & (k < n)
        found = np.clip(_binomial("cdf")(np.where(inside, k, 0.0), n, p), 0.0, 1.0)
        return np.where(inside, found, np.where(k >= n, 1.0, 0.0))[()]

    def sf(self, k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Any:
        """P(K > k)."""
        k, n, p = np.floor(np.asarray(k, float)), np.asarray(n), np.asarray(p, float)
        inside = (k >= 0) & (k < n)
        found = np.clip(_binomial("sf")(np.where(inside, k, 0.0), n, p), 0.0, 1.0)
        return np.where(inside, found, np.where(k >= n, 0.0, 1.0))[()]

    def ppf(self, level: ArrayLike, n: ArrayLike, p: ArrayLike) -> Any:
        """The smallest k with P(K <= k) at least the level; -1 at level 0."""
        return self._quantile("ppf", np.asarray(level, float), n, p, nothing=0.0)

    def isf(self, level: ArrayLike, n: ArrayLike, p: ArrayLike) -> Any:
        """The smallest k with P(K > k) at most the level; -1 at level 1."""
        return self._quantile("isf", np.asarray(level, float), n, p, nothing=1.0)

    def _quantile(self, question: str, level: Array, n: ArrayLike, p: ArrayLike, *, nothing: float) -> Any:
        n, p = np.asarray(n), np.asarray(p, float)
        inside = (level > 0) & (level < 1)
        found = _binomial(question)(np.where(inside, level, 0.5), n, p)
        found = np.where(inside, found, np.where(level == nothing, -1.0, np.where(level == 1 - nothing, n, np.nan)))
        return np.where((p >= 0) & (p <= 1), found, np.nan)[()]


class ChiSquare(_Quick):
    """The sum of squares of ``degrees`` standard normals."""

    def cdf(self, x: ArrayLike, degrees: ArrayLike) -> Any:
        """P(X <= x)."""
        return special.chdtr(degrees, np.maximum(x, 0.0))

    def sf(self, x: ArrayLike, degrees: ArrayLike) -> Any:
        """P(X > x)."""
        return special.chdtrc(degrees, np.maximum(x, 0.0))

    def ppf(self, level: ArrayLike, degrees: ArrayLike) -> Any:
        """The quantile at which ``cdf`` equals the level."""
        return 2 * special.gammaincinv(np.asarray(degrees) / 2, level)

    def isf(self, level: ArrayLike, degrees: ArrayLike) -> Any:
        """The quantile at which ``sf`` equals the level."""
        return special.chdtri(degrees, level)


class Normal(_Quick):
    """The standard normal."""

    def cdf(self, x: ArrayLike) -> Any:
        """P(X <= x)."""
        return special.ndtr(x)

    def sf(self, x: ArrayLike) -> Any:
        """P(X > x)."""
        return special.ndtr(-np.asarray(x))

    def ppf(self, level: ArrayLike) -> Any:
        """The quantile at which ``cdf`` equals the level."""
        return special.ndtri(level)

    def isf(self, level: ArrayLike) -> Any:
        """The quantile at which ``sf`` equals the level."""
        return -special.ndtri(level)


class Student(_Quick):
    """Student's t distribution."""

    def sf(self, x: ArrayLike, degrees: ArrayLike) -> Any:
        """P(X > x)."""
        return special.stdtr(degrees, -np.asarray(x))

    def isf(self, level: ArrayLike, degrees: ArrayLike) -> Any:
        """The quantile at which ``sf`` equals the level."""
        level = np.asarray(level, float)
        inside = (level > 0) & (level < 1)
        # SciPy 1.15 has no quantile at 0 and 1
        found = -special.stdtrit(degrees, np.where(inside, level, 0.5))
        ends = np.where(level == 0, np.inf, np.where(level == 1, -np.inf, np.nan))
        return np.where(inside, found, ends)[()]


class Fisher(_Quick):
    """Fisher's F distribution: the ratio of two mean squares."""

    def sf(self, x: ArrayLike, numerator: ArrayLike, denominator: ArrayLike) -> Any:
        """P(X > x)."""
        return special.fdtrc(numerator, denominator, np.maximum(x, 0.0))


class Poisson(_Quick):
    """The Poisson distribution, with ``mean`` expected events."""

    def logpmf(self, k: ArrayLike, mean: ArrayLike) -> Any:
        """ln P(K = k), for whole numbers k from 0 on."""
        k = np.asarray(k, float)
        return (special.xlogy(k, mean) - special.gammaln(k + 1) - mean)[()]

    def sf(self, k: ArrayLike, mean: ArrayLike) -> Any:
        """P(K > k)."""
        k = np.floor(np.asarray(k, float))
        return np.where(k < 0, 1.0, special.pdtrc(np.maximum(k, 0.0), mean))[()]


binom = Binomial("binom")
chi2 = ChiSquare("chi2")
fisher = Fisher("f")
norm = Normal("norm")
poisson = Poisson("poisson")
student = Student("t")
hypergeom = Distribution("hypergeom")
kstwo = Distribution("kstwo")
