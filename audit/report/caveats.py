"""Caveats of an answer: a direction only learned, too few trials, a p-value close to the risk, an early end."""

from __future__ import annotations

from collections.abc import Sequence

from audit.power.less_noise import sampled
from audit.record.diagnosis_answer import REPLAY
from audit.record.record import AuditRecord
from audit.report.diagnoses import asked, code_lines, suspects
from audit.report.half_noise import half_noise_trials
from guarantees.numerics.rounding import at_most
from mechanisms.catalogue import COLLAPSED, MECHANISMS

MAKE_IT_KNOWN = "To make it known, pass gradients= (or loss= for torch_training and jax_training)."
OF_STATISTICS = ("laplace", "randomised_response")
"""Claims of code that hardly ever has gradients."""
CLOSE_TO_THE_RISK = 0.1
"""Share of the risk above which a p-value is close to it."""


def close_call(record: AuditRecord) -> str:
    """Caveat of a violation with a p-value close to the risk and no wrong line found, and how to confirm it.

    The verdict stands as it is. A fresh seed is an audit of its own: its risk is not that of this one.
    """
    if record.stops_early:
        # its p-value is just below the risk by construction
        return ""
    risk = record.risk if record.suite is None else record.suite.risk
    if record.verdict != "violation" or record.adjusted_p_value < CLOSE_TO_THE_RISK * risk:
        return ""
    if code_lines(record.diagnoses):
        return ""
    searched = "found" if asked(record.diagnoses) else "looked for"
    missing = "line of code looks wrong" if suspects(record.diagnoses) else f"cause was {searched}"
    among = "" if record.suite is None or record.suite.audits == 1 else f" among the {record.suite.audits} of the suite"
    alone = f" ({record.p_value:.2g} for this audit alone)" if among else ""
    return (
        f"the p-value {record.adjusted_p_value:.2g}{among}{alone} is close to the risk {risk:.2g}, and no {missing}: "
        f"confirm {again((record,))} at a smaller risk. State both audits: each has its own risk."
    )


def found_leak(record: AuditRecord) -> str:
    """The smallest leak that an audit finds, as often as its reason says, by how often a guess is right."""
    found = record.claim.advantage + (record.detectable_advantage_excess or 1.0)
    return "" if found >= 1 else f"a leak that makes {at_most(50 * (1 + found))}% of guesses right"


def again(records: Sequence[AuditRecord]) -> str:
    """How to confirm an audit: a new seed draws no new trials if they were drawn elsewhere."""
    return "with new trials" if any(record.conditions for record in records) else "with a fresh seed"


def expected_not_found(records: Sequence[AuditRecord]) -> str:
    """A sentence on audits whose expected violation was not found: such a control did not show that the audit works."""
    names = [repr(each.name) for each in records if each.ran and each.expect == "violation" != each.verdict]
    if not names:
        return ""
    was = "was" if len(names) == 1 else "were"
    return (
        f"The {'violation' if len(names) == 1 else 'violations'} expected in {', '.join(names)} {was} not found: the "
        "trials are too few to see it, or the code has changed."
    )


def ended_early(record: AuditRecord) -> str:
    """Caveat of a violation that ended before its last trial: its p-value and numbers say little about the leak."""
    if record.verdict != "violation" or not record.stops_early or record.trials >= record.trials_planned:
        return ""
    return (
        f"the audit ended at trial {record.trials:,} of {record.trials_planned:,}, as soon as the claim was refuted. "
        "So p does not say how large the leak is, and so few trials prove little of epsilon and delta; an audit that "
        "does not stop early proves more of them."
    )


def only_learned(record: AuditRecord) -> bool:
    """Whether every judged score was learned from fit trials, without the record's gradient."""
    names = [] if record.scores is not None else [grid.member for grid in record.grids]
    return bool(names) and all(name.startswith("learned") and name != "learned record" for name in names)


def learned_note(record: AuditRecord) -> str:
    """Caveat of learned scores, with the trials that find half the noise missing; empty if a direction was known."""
    if record.verdict == "violation" or not only_learned(record):
        return ""
    trials = half_noise_trials(record)
    more = "" if trials is None else f" Along a known one {_half_noise(record, trials)}; a learned one needs more."
    return (
        f"the direction in which the record moves the release was only learned, from {record.fit_trials:,} fit "
        f"trials.{more} {MAKE_IT_KNOWN}"
    )


def what_shows_more(record: AuditRecord) -> str:
    """Advice without a violation: what to tell an audit that only learned a direction, and which pair to audit next."""
    learned = record.verdict != "violation" and only_learned(record) and record.claim.name not in OF_STATISTICS
    advice = f"The direction in which the record moves the release was only learned. {MAKE_IT_KNOWN}" if learned else ""
    return f"{advice} {second_pair(record)}".strip()


def trials_note(record: AuditRecord) -> str:
    """Caveat for a known direction: the trials that would find half the noise missing, if these are fewer."""
    if record.verdict == "violation" or not record.drawn or record.scores is not None or only_learned(record):
        return ""
    trials = half_noise_trials(record)
    if trials is None or record.trials >= trials:
        return ""
    hidden = " (more where other records of the batch hide the record)" if _in_batches(record) else ""
    return f"{_half_noise(record, trials)}{hidden}; this audit drew {record.trials:,}."


def other_than_told(record: AuditRecord) -> str:
    """Differences between what one run of the audited training showed and what was stated; empty if there are none."""
    return "; ".join(clause for key in ("contradicted", "after_step") if (clause := record.environment.get(key)))


def no_wrong_line(records: Sequence[AuditRecord]) -> str:
    """Audits whose code was replayed and showed no wrong line, and those that no replay judged without saying so."""
    replayed = [record for record in records if record.environment.get(REPLAY)]
    if not replayed:
        return ""
    names = [repr(record.name) for record in replayed]
    # after a violation the whole code is replayed
    brief = all(record.verdict != "violation" for record in replayed)
    kind, further = ("brief replay", "; `dpsgd-audit explain` looks further") if brief else ("replay", "")
    whose = "" if len(names) == len(records) else f" of {', '.join(names)}"
    left = [repr(record.name) for record in records if _without_replay(record)]
    besides = f" It did not judge {', '.join(left)}; `dpsgd-audit explain` says why." if left else ""
    return f"A {kind} of the code{whose} found no line that looks wrong{further}.{besides}"


def _without_replay(record: AuditRecord) -> bool:
    """Whether a user's code shows no violation, and no replay of it was praised, told or excused."""
    audited = record.drawn and record.verdict != "violation" and record.scores is None and record.diagnose is not False
    ours = record.mechanism.name in {*MECHANISMS, *COLLAPSED}
    return audited and not ours and not record.diagnoses and not record.environment.get(REPLAY)


def _half_noise(record: AuditRecord, trials: int) -> str:
    digits, promised = max(0, len(str(trials)) - 2), sampled(record.claim)
    less = (
        "if half of the noise were missing"
        if promised is None
        else f"if the noise multiplier were {promised.noise_multiplier / 2:g} in place of {promised.noise_multiplier:g}"
    )
    return f"about {round(trials, -digits):,} trials would show this claim broken {less}"


OF_DATA = ("pair", "add_record", "replace_record", "zero_out")
"""Pairs of the user's own records."""
OF_GRADIENTS = ("gradient_canary", "worst_case_pair")
"""Pairs whose other records pull against the one that differs, unless told otherwise."""
FEW_OTHERS = 4
OF_BATCHES = ("sampler", "batches", "rounds")
"""Parameters that say how records are divided among batches, as claims about shuffled batches have them."""
IN_JAX = " (gradient_canaries(weights).pair(data, relation=..., others='zero'))"
"""How to make such a pair where the audited code is JAX."""
OF_ROWS = " (worst_case_pair(..., shared=0.0))"
"""How to make such a pair where the records are gradients and there are no weights."""
SECOND_PAIR = (
    "The other records have gradients too, and their random presence in the batch hides what one record does. Next, "
    "audit one or two records and a new one whose gradient points the other way and is many times longer, or a canary "
    "among others whose gradients are zero{}."
)


SILENT_PAIR = (
    "Next, audit the same record among others whose gradients are zero{}: on this pair the sum varies with the "
    "others in the batch, and that can hide missing noise."
)
OPPOSED_PAIR = (
    "Next, audit the same record among others whose gradients point the other way: zero gradients do not reveal a "
    "clipped sum or a division by the batch's size."
)


def second_pair(record: AuditRecord) -> str:
    """Which pair to audit next if a user's code shows no violation: no single pair shows every fault."""
    pair, promised = record.neighbours, sampled(record.claim)
    if record.verdict != "no_violation_found" or pair.name not in (*OF_DATA, *OF_GRADIENTS):
        return ""
    in_jax = "" if "torch" in record.environment or "function" in record.mechanism.parameters else IN_JAX
    if pair.name in OF_DATA and pair.parameters.get("records", 0) > FEW_OTHERS:
        return SECOND_PAIR.format(in_jax) if _in_batches(record) else ""
    if promised is None or promised.rate >= 1 or record.mechanism.name in {*MECHANISMS, *COLLAPSED}:
        return ""
    lengths = record.gradient_lengths
    silent = pair.parameters.get("others") == "zero" or not pair.parameters.get("records", 1)
    silent = silent or (lengths is not None and max(lengths.others, default=0.0) == 0)
    return OPPOSED_PAIR if silent else SILENT_PAIR.format(OF_ROWS if pair.name == "worst_case_pair" else in_jax)


def _in_batches(record: AuditRecord) -> bool:
    """Whether the claim, or what was stated about the code, says that not every record is in every batch."""
    given = {**record.claim.parameters, **record.mechanism.parameters}
    rates = [given.get("rate"), given.get("sample_rate"), *(rate for _, rate, _ in given.get("history", ()))]
    some = any(isinstance(rate, int | float) and rate < 1 for rate in rates)
    return some or any(word in given for word in OF_BATCHES) or "Sampled" in str(given.get("event"))
