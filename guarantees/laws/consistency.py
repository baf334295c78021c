"""Identities that hold for every pair of laws, checked on the numbers that a law returns."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from guarantees.laws.law import LossLaw, Tails
from guarantees.numerics.array import Array

PROBES = np.concatenate([-np.geomspace(50.0, 1e-3, 16), [0.0], np.geomspace(1e-3, 50.0, 16)])
"""Thresholds at which laws that are cheap to evaluate are checked."""

WORST = 1e-3
"""A law that is off by more than this, and than its stated error, is refused; below, its stated error is widened."""


class InconsistentLawError(ArithmeticError):
    """A computed law breaks an identity that holds for every pair: its numbers must not be used."""


def defect_of(thresholds: Array, tails: Tails) -> float:
    """Amount by which tails at these thresholds break the identities of a pair: 0 if exact, infinite for a NaN.

    Each side's two tails sum to 1 (lost mass is an inequality's blind spot); tails fall as the threshold rises; and
    the loss between two thresholds a < b has ``e^a P_without <= P_with <= e^b P_without``, which over all cells is
    ``E_without e^L + P_with(L = inf) = 1`` and its mirror image, and makes the curve convex and lie below
    ``1 - alpha``. In units of a tail's absolute error.
    """
    above0, below0, above1, below1 = (
        np.ravel(side) for side in (tails.without_above, tails.without_below, tails.with_above, tails.with_below)
    )
    each = np.stack([above0, below0, above1, below1])
    if np.isnan(each).any():
        return np.inf
    lost = max(float(np.abs(above0 + below0 - 1).max()), float(np.abs(above1 + below1 - 1).max()))
    found = max(lost, -float(each.min()), float(each.max()) - 1)
    t = np.ravel(thresholds)
    return found if t.size < 2 else max(found, _cells(t, each))


def _cells(thresholds: Array, each: Array) -> float:
    """Largest violation of the rules for the loss between neighbouring thresholds."""
    order = np.argsort(thresholds, kind="stable")
    t, (above0, below0, above1, below1) = thresholds[order], each[:, order]
    # The mass of a cell, from whichever tail is the smaller and so the more accurate.
    without, with_record = (
        np.where(above[:-1] < below[1:], above[:-1] - above[1:], below[1:] - below[:-1])
        for above, below in ((above0, below0), (above1, below1))
    )
    low, high = t[:-1], t[1:]
    less = expit(low) * without - expit(-low) * with_record
    more = expit(-high) * with_record - expit(high) * without
    return float(max(less.max(), more.max(), -without.min() / 2, -with_record.min() / 2, 0.0)) / 2


def defect_at(law: LossLaw) -> float:
    """The defect of a law at some thresholds."""
    return defect_of(PROBES, law.tails(PROBES))


def honest_error(stated: float, defect: float, what: str) -> float:
    """The stated error if the law keeps it, the observed one if that is small; otherwise the law is refused."""
    # Two tails, each within the stated error, may miss their sum by twice that.
    if defect <= 2 * stated + 1e-14:
        return stated
    if defect <= WORST:
        return defect
    raise InconsistentLawError(
        f"{what} breaks an identity of every pair of laws by {defect:.2g}, its stated error is {stated:.2g}: "
        "our numerics are not accurate enough for these parameters; please report them."
    )
