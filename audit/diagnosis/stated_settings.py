"""What the record states of one step (clipping norm, noise, rate, divisor, steps), and what it leaves unstated."""

from __future__ import annotations

from audit.diagnosis.all_questions import Law
from audit.diagnosis.allowed_movement import CLOSE, is_pure
from audit.diagnosis.explain.dispatch import positive, promised
from audit.record.diagnosis_answer import NOT_TOLD, Diagnosis, not_asked
from audit.record.record import AuditRecord, ClaimPart
from mechanisms.release import Layout

SEVERAL_STEPS = (
    "the release is the end of several steps, or of an unknown number, and later steps may see what earlier ones "
    "released. So noise, clipping, divisor and rate of one step are not judged, and any of them may be wrong. To check "
    "them one by one, audit one step with releases='update'."
)
"""Said of an output that sums several steps."""
FIRST_STEP = (
    "gradients of later steps depend on what earlier steps released, so only those of the first step are known. "
    "Of all {rounds} steps it is asked whether each has noise of its own; the other answers are about the first."
)
"""Said of a transcript whose gradients are unknown after the first step."""
ROWS = (
    "the release has {rows} rows (shape {shape}) and is judged as one step's. If they are the steps of a training, say "
    "releases='transcript' where the mechanism is made: then each step is compared with those before it."
)
"""Said of a table that may be a transcript, if no cause was found."""

DIVISORS = ("normalise_by", "divisor")
"""Names of settings that hold the divisor of a release."""


def stated_numbers(record: AuditRecord) -> tuple[float | None, float | None, float]:
    """Clipping norm, noise multiplier and rate: the mechanism's own or, by default, the claim's at the pair's norm.

    All are unknown if one output combines several steps. A divisor chosen beforehand may scale them.
    """
    own, claim, pair = record.mechanism.parameters, record.claim.parameters, record.neighbours.parameters
    source, clip = (own, own.get("clip")) if positive(own.get("noise_multiplier")) else (claim, pair.get("clip"))
    clip, noise = positive(clip), positive(source.get("noise_multiplier"))
    rates = (own.get("rate"), claim.get("sample_rate"), claim.get("rate"))
    rate = next((found for found in map(positive, rates) if found is not None), 1.0)
    several = record.claim.times > 1 or (record.releases == "final" and (stated_steps(record) or 1) > 1)
    if clip is None or noise is None or (several and record.releases != "transcript"):
        return None, None, 1.0
    return clip, noise, min(rate, 1.0)


def stated_divisor(record: AuditRecord) -> float | None:
    """Divisor of the whole release, if the settings of the user's own code name one."""
    own = record.mechanism.parameters
    return next((found for found in map(positive, map(own.get, DIVISORS)) if found is not None), None)


def stated_law(record: AuditRecord) -> Law:
    """The law of the noise that the claim names or, by default, the mechanism; many claims name none."""
    if record.claim.name == "laplace":
        return "laplace"
    normal = promised(record.claim) or positive(record.mechanism.parameters.get("noise_multiplier"))
    return "normal" if normal else "any"


def rate_is_stated(record: AuditRecord) -> bool:
    """Whether claim or mechanism state a sampling rate; a Gaussian claim of the stated noise means: always sampled."""
    own, claim = record.mechanism.parameters, record.claim.parameters
    noise, mu = positive(own.get("noise_multiplier")), positive(claim.get("mu"))
    no_sampling = record.releases == "update" and noise is not None and mu is not None and mu * noise > 1 - CLOSE
    return no_sampling or bool(own.get("rate") or {"rate", "sample_rate"} & claim.keys())


def adds_noise(claim: ClaimPart) -> bool:
    """Whether a release that keeps the claim is usually a number of the data plus noise, without sampling."""
    return claim.times == 1 and claim.name != "randomised_response" and (is_pure(claim) or claim.name == "gaussian")


def stated_steps(record: AuditRecord) -> int | None:
    """Number of steps of the training, as counted or, by default, as claimed."""
    return record.claim.steps if record.steps is None else record.steps


def rows_may_be_steps(record: AuditRecord, layout: Layout) -> tuple[Diagnosis, ...]:
    """Remark that the rows of a release judged as one step may be steps, if all its arrays have equally many."""
    rows = {shape[0] if len(shape) > 1 else 1 for shape in layout.shapes}
    if record.releases not in ("", "update") or len(rows) > 1 or rows == {1}:
        return ()
    shape = layout.shapes[0] if len(layout.shapes) == 1 else layout.told
    return (not_asked(ROWS.format(rows=rows.pop(), shape=shape), code=NOT_TOLD),)


def what_to_state(record: AuditRecord, *, gradients: bool, loss: bool = False) -> str:
    """Advise which settings to state, and whether to give the gradients, so that more can be checked.

    "" where a pure epsilon is claimed and no setting is given: clipped gradients usually have no such claim.
    """
    known, own = stated_numbers(record)[0] is not None, record.mechanism.parameters
    numbers = ("clip", "noise_multiplier")
    if is_pure(record.claim) and all(positive(own.get(name)) is None for name in numbers):
        return ""
    missing = [f"{name}=" for name in numbers if not known and positive(own.get(name)) is None]
    if gradients:
        missing.append(f"gradients= (a function of the dataset{'; loss= is enough' if loss else ''})")
    if not missing:
        return ""
    *others, last = missing
    what = f"{', '.join(others)} and {last}" if others else last
    return (
        f"If the release is a noisy sum of clipped gradients or updates, pass {what} to have the noise, the clipping "
        "and the divisor checked one by one."
    )
