"""The answer to one question, as records keep it."""

from __future__ import annotations

import dataclasses

NOT_ASKED = "not_asked"
"""The code of an answer that says why nothing was asked."""

NOT_TOLD = "not_told"
"""The same where the user can change that by telling more of the code: reports show it."""
CONSTANT = "constant"
"""The code of an answer that says that the release never varies."""
DEPENDENT = "dependent"
"""The code of an answer that says that trials depend on each other: no bound holds then."""
REPEATED = "repeated"
"""The code of an answer that says that trials use the noise of others again."""
STILL = "still"
"""The code of a remark that some coordinates never vary, which is right or not as the code has it."""
LINE = "line:"
"""How the codes of answers begin that a replay of the code gives."""
LINE_NOT_FOLLOWED = f"{LINE}not_followed"
"""The code of an answer that says why no line of the code was looked for."""
LAWS = ("normal", "laplace", "grain", "tails")
"""Codes of answers about the noise's law: what is done after the noise may bend, round or cut it, and break nothing."""
NO_HINTS = ("direction", "shared", *LAWS)
"""Codes that accuse nobody where there is no violation: tensors may be clipped by themselves, within one bound, and a
release may be smoothed."""
POSSIBLE = "Possible causes"
"""What follows, in an answer, where several are possible."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The answer to one question about the noise or the sum."""

    question: str
    wrong: bool
    says: str
    risk: float
    """Probability of saying 'wrong' when it is right, given the assumption. Zero: nothing was tested."""
    assumes: str
    p_value: float | None = None
    """None where nothing was tested, or an interval decided."""
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    follows: str = ""
    """The code of the question whose answer 'wrong' explains this one, which reports then leave out."""
    code: str = ""
    """The question's short name, which does not change with its wording; empty in records of older versions."""
    lines: tuple[tuple[str, int], ...] = ()
    """(path, line) of the code that an answer points at, the user's own first; relative below the working folder."""
    causes: tuple[str, ...] = ()
    """Codes of what may have caused an answer 'wrong'. One: the others that are known are excluded."""


NO_LINE = Diagnosis(
    code=f"{LINE}none", question="which line?", wrong=False, says="no line looks wrong", risk=0.0, assumes="nothing"
)
"""A replay that was made and found nothing: a record tells that under ``REPLAY`` of its environment."""
REPLAY = "replay"


def not_asked(reason: str, *, code: str = NOT_ASKED) -> Diagnosis:
    """No question was asked, and why."""
    says = f"not asked: {reason}"
    return Diagnosis(
        code=code,
        question="what looks wrong?",
        wrong=False,
        says=says,
        risk=0.0,
        assumes="nothing",
    )
