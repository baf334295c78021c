"""What a proven delta implies for other numbers: every trade-off curve that reaches it reaches them too."""

from __future__ import annotations

from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Question
from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.numerics.search import halved

LARGEST_MU = 60.0
"""Largest mu that is considered: its curve is 0 to machine precision."""
TOLERANCE = 1e-7
"""Amount by which a searched mu is lowered, more than the search and its special functions err."""
ROUND_OFF = 1e-12
"""Closed forms are lowered by this part of themselves, and by as much of 1."""


def implied(question: Question, *, epsilon: float, delta: float) -> float:
    """Lower bound on a number, given that delta at ``epsilon`` is at least ``delta``; never above the truth.

    A symmetric curve with this delta passes through a point on or below ``f`` of (epsilon, delta), and the number is
    least at one of those points: where f is steep it falls towards the axis, or else towards the middle of f.
    [docs/validity.md, section 12]
    """
    if delta <= 0:
        return 0.0
    if isinstance(question, DeltaAt) and question.epsilon <= epsilon:
        return delta
    if isinstance(question, EpsilonAt) and question.delta > delta:
        return 0.0
    if not isinstance(question, DeltaAt | EpsilonAt):
        return mu_of(epsilon, delta)
    middle = DeltaAt(epsilon=epsilon).middle(delta)
    there = float(question.through(middle, middle))
    least = epsilon if isinstance(question, EpsilonAt) else 0.0
    return max(least, there - ROUND_OFF * (1 + there))


def mu_of(epsilon: float, delta: float) -> float:
    """The mu whose curve has this delta at ``epsilon``, never above the truth: a smaller mu has a smaller delta."""
    if delta <= 0:
        return 0.0
    reached = halved(lambda mu: float(gaussian_delta(epsilon, mu)) >= delta, 0.0, LARGEST_MU, within=TOLERANCE)
    return max(0.0, reached[0] - TOLERANCE)
