"""The answer to one question, as records store it."""

from __future__ import annotations

import dataclasses

NOT_ASKED = "not_asked"
"""Code of an answer that says why nothing was asked."""

NOT_TOLD = "not_told"
"""Code of such an answer if stating more of the code would change it, which reports show."""
CONSTANT = "constant"
"""Code of the answer that the release never varies."""
DEPENDENT = "dependent"
"""Code of the answer that trials depend on each other, so that no bound holds."""
REPEATED = "repeated"
"""Code of the answer that trials reuse the noise of others."""
STILL = "still"
"""Code of the remark that some coordinates never vary, which may be right."""
LINE = "line:"
"""Prefix of the codes of answers from a replay of the code."""
LINE_NOT_FOLLOWED = f"{LINE}not_followed"
"""Code of the answer that says why no line of the code was sought."""
LAWS = ("normal", "laplace", "grain", "tails")
"""Codes of answers about the noise's law, which steps after the noise may change without breaking anything."""
NO_HINTS = ("direction", "shared", *LAWS)
"""Codes that are no hints where there is no violation: tensors may be clipped separately within one bound, and a
release may be smoothed."""
POSSIBLE = "Possible causes"
"""Introduces several possible causes in an answer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The answer to one question about the noise or the sum."""

    question: str
    wrong: bool
    says: str
    risk: float
    """Probability of a false "wrong" under the assumption; zero if nothing was tested."""
    assumes: str
    p_value: float | None = None
    """None if nothing was tested, or an interval decided."""
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    follows: str = ""
    """Code of the "wrong" answer that explains this one, which reports then omit."""
    code: str = ""
    """The question's short name, which does not change with its wording; empty in records of older versions."""
    lines: tuple[tuple[str, int], ...] = ()
    """(path, line) of the code that an answer points at, the user's own first; relative below the working folder."""
    causes: tuple[str, ...] = ()
    """Codes of possible causes of "wrong"; a single one if all other known causes are excluded."""


NO_LINE = Diagnosis(
    code=f"{LINE}none", question="which line?", wrong=False, says="no line looks wrong", risk=0.0, assumes="nothing"
)
"""A replay that found nothing, which a record states under ``REPLAY`` of its environment."""
REPLAY = "replay"


def not_asked(reason: str, *, code: str = NOT_ASKED) -> Diagnosis:
    """An answer that says why no question was asked."""
    says = f"not asked: {reason}"
    return Diagnosis(
        code=code,
        question="what looks wrong?",
        wrong=False,
        says=says,
        risk=0.0,
        assumes="nothing",
    )
