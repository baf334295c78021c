"""Records as sentences for people who decide: what was audited, promised, proven, not looked at, and what to do."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Sequence

from audit.record.record import AuditRecord
from audit.record.unrun import NOT_BUILT
from audit.report.audited import differ_by, unit
from audit.report.caveats import again, close_call, ended_early, expected_not_found, found_leak, what_shows_more
from audit.report.ceiling import Ceiling
from audit.report.diagnoses import but_for, code_lines, depends, looks_wrong, suspects
from audit.report.given import judged_scores
from audit.report.look_again import look_again, time_of
from audit.report.promises import in_words, refuted_gaussian
from audit.report.table import readable_p_value
from audit.verdict.judgement import RUNS
from dpsgd_audit.spelling import counted
from guarantees.numerics.rounding import at_least, at_most
from mechanisms.catalogue import COLLAPSED, MECHANISMS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Story:
    """One or two sentences for each question that a reader who decides asks first."""

    audited: str
    promised: str
    proven: str
    not_looked_at: str
    to_do: str


def story(records: tuple[AuditRecord, ...]) -> Story:
    """The whole suite in five answers."""
    return Story(
        audited=_audited(records),
        promised=_promised(records),
        proven=_proven(records),
        not_looked_at=NOT_LOOKED_AT,
        to_do=_to_do(records),
    )


NOT_LOOKED_AT = (
    "Other pairs of datasets, attacks with other scores, more releases than each audit names, and side channels "
    "(time, memory, logs). “No violation found” is not a proof of privacy."
)
LINES = "look for wrong lines"
UNCONFIRMED = "the trials did not confirm it"
HIDDEN = 0.5
"""A pair whose exact epsilon is below this share of the claimed one hides the record."""
NO_ANSWER = {"inconclusive": "could not tell", "could_not_run": "could not run"}
"""Words for verdicts that are neither a surprise nor a proof."""


def outcome(record: AuditRecord) -> str:
    """How a verdict compares with what the suite expects."""
    if record.as_expected:
        return "as expected"
    if record.verdict in NO_ANSWER:
        return NO_ANSWER[record.verdict]
    return "not expected" if record.verdict == "violation" else "expected violation not found"


def consequence(record: AuditRecord, most: Ceiling | None) -> str:
    """What a verdict means for an attacker who must guess whether the record was there."""
    allowed = (1 + record.claim.advantage) / 2
    if depends(record):
        return "Nothing is proven, for or against the claim: trials depend on each other."
    if record.verdict == "violation":
        right = (1 + record.delta(0.0)) / 2
        broken = f"{_capital(what_broke(record))}. "
        meaning = f"Anyone who sees {_release(record)} can tell {_secret((record,))} better than promised"
        if right > allowed:
            won = f"{at_least(100 * right)}%"
            meaning += f": a guess is right at least {won} of the time, and the claim allows {_percent(allowed)}"
        return f"{broken}{meaning}. {_limits(record, most)}".strip()
    if record.verdict == "inconclusive":
        # the reason is computed again by whoever verifies it, who has no clock
        needed = None if record.conditions else record.trials_needed
        took = f" They take at most about {time_of([record], needed)} at this run's pace." if needed else ""
        return f"Nothing is decided: {record.reason}{took}"
    if not record.ran:
        return f"Nothing was measured: {record.reason}"
    found = (
        f"No leak above the claim was found. Under the claim a guess is right at most {_percent(allowed)} of the time"
    )
    leak = found_leak(record)
    return f"{found}. {_capital(RUNS)} this audit would have found {leak}." if leak else f"{found}; {record.reason}"


def remedy(record: AuditRecord) -> str:
    """What to do about a verdict."""
    if depends(record):
        return "Let every trial start from the same state, and audit again. Do not read the verdict as one."
    if record.verdict != "violation" and looks_wrong(record.diagnoses):
        # trials alone decide
        passed = "" if record.verdict == "no_violation_found" else "Do not read it as a pass. "
        if lines := code_lines(record.diagnoses):
            return f"{passed}Check {lines[0][0]}:{lines[0][1]}, which a replay suspects; {UNCONFIRMED}."
        return f"{passed}Look at the hint below, which is not a violation."
    if record.verdict == "inconclusive":
        return f"Do not read it as a pass. {look_again([record])} {what_shows_more(record)}".rstrip()
    if not record.ran:
        return "Fix what failed and run it again. Do not read it as a pass."
    if record.verdict == "no_violation_found":
        if record.expect == "violation":
            return f"Do not read it as a pass. {expected_not_found([record])}"
        if record.one_run is not None:
            return "Nothing, for this claim and these canaries. Audit single steps before relying on it."
        if record.scores is not None:
            return "Nothing, for this claim and these scores. Try another attack and other pairs before relying on it."
        whole = "" if record.releases in ("transcript", "final") else " and the whole training"
        lines = f", and let {_replay(record)}" if _of_the_user(record) else ""
        known = "" if record.exact_epsilon is None else f" {_known_leak(record)}"
        advice = f"Nothing, for this claim and this pair. Audit other pairs{whole} before relying on it{lines}.{known}"
        return f"{advice} {what_shows_more(record)}".rstrip()
    close = f" {_capital(note)}" if (note := ended_early(record) or close_call(record)) else ""
    first = "Check what is vouched for below first. If it holds, do" if record.conditions else "Do"
    return f"{first} not state this claim for this code: repair the code, or account for what it does.{close}"


def _limits(record: AuditRecord, most: Ceiling | None) -> str:
    """How far the proven epsilon is from what these trials, and the mechanism itself, could show."""
    proven = record.epsilon(record.report_delta)
    parts = []
    if most is not None:
        limit = at_most(most.epsilon)
        trials = "so many trials" if record.scores is not None else f"{record.trials_per_side:,} trials per side"
        parts.append(f"{trials} can prove at most epsilon {limit}")
    if record.exact_epsilon is not None:
        parts.append(f"the exact value for this pair is {record.exact_epsilon:.4g}")
    if not parts or proven == 0:
        return ""
    text = "; ".join(parts)
    return f"Epsilon {at_least(proven)} is a lower bound, not the leak: {text}."


def _known_leak(record: AuditRecord) -> str:
    """What this pair leaks by theory, and that another may leak more, if that is far below the claim."""
    exact, claimed = record.exact_epsilon, record.claim.epsilon
    assert exact is not None
    leak = f"By theory this pair leaks epsilon {exact:.3g} at delta {record.report_delta:g}"
    if claimed is None or not math.isfinite(claimed) or exact > HIDDEN * claimed:
        return f"{leak}."
    return (
        f"{leak}, far below the claim's {at_most(claimed)}: where other records in the batch hide the record, an "
        'attack that knows them (sees = "isolated") or a pair of fewer records shows more.'
    )


def _release(record: AuditRecord) -> str:
    """The release in which the claim is violated; for one training only the auditor knows what the scores read."""
    if record.conditions:
        return "what the canaries were scored by" if record.one_run is not None else "what the scores read"
    return record.claim.observation.rstrip(".")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _percent(share: float) -> str:
    """How often a guess may be right, rounded so that it is never less than the claim allows."""
    return f"{at_most(100 * share)}%"


def _audited(records: tuple[AuditRecord, ...]) -> str:
    sentences = []
    if repeated := repeated_runs(records):
        of_a_name = Counter(record.name for record in repeated)
        names = listed([f"{name!r}{f' {times} times' * (times > 1)}" for name, times in of_a_name.items()])
        how = " or ".join(sorted({differ_by(record) for record in repeated}))
        trials = sum(record.trials for record in repeated)
        sentences.append(
            f"{counted(len(repeated), 'audit')} ({names}): each ran its code on two datasets that differ by {how} "
            f"({trials:,} runs in total); can the outputs tell which of the two was used?"
        )
    if any(record.one_run is not None for record in records):
        coins = f"{trained_once(records)}, each in it by a fair coin"
        sentences.append(f"{coins}; can what it releases tell which were in?")
    given = [record for record in records if record.scores is not None]
    sentences += [f"{_capital(judged_scores(record))}. Can they tell {_secret((record,))}?" for record in given]
    return " ".join(sentences)


def repeated_runs(records: tuple[AuditRecord, ...]) -> tuple[AuditRecord, ...]:
    """Audits that drew trials, without those that could not run, unless there are no others."""
    drawn = tuple(record for record in records if not record.conditions)
    return tuple(record for record in drawn if record.ran) or drawn


def trained_once(records: tuple[AuditRecord, ...]) -> str:
    """Audits of one training each, with their numbers of canaries, which are not added up."""
    canaries = sorted(record.one_run.canaries for record in records if record.one_run is not None)
    span = f"{canaries[0]:,}" if canaries[0] == canaries[-1] else f"{canaries[0]:,} to {canaries[-1]:,}"
    each = "" if len(canaries) == 1 else ", each"
    return f"{counted(len(canaries), 'audit')}{each} of one training with {span} canaries"


def _replay(record: AuditRecord) -> str:
    """How to look at the lines of the audited code: the command reads suites, the function takes the code."""
    called = "`audit.explain` (Python)" if record.suite is None else "`dpsgd-audit explain`"
    return f"{called} {LINES}"


def _secret(records: tuple[AuditRecord, ...]) -> str:
    """What the pair's relation hides."""
    units = {unit(record) for record in records}
    one = units.pop() if len(units) == 1 else "record"
    if all(record.neighbours.kind == "substitution" for record in records):
        return f"which of two {one}s was in the data"
    return f"whether one {one} was in the data"


def _promised(records: tuple[AuditRecord, ...]) -> str:
    records = tuple(record for record in records if record.claim.source != NOT_BUILT)
    if not records:
        return "Not known: no claim could be built."
    every = {in_words(record.claim) for record in records}
    claims = _capital(every.pop()) if len(every) == 1 else f"{len(every)} claims, each named with its audit"
    doubtful = {
        in_words(r.claim): r.claim.epsilon_at(r.report_delta) for r in records if r.claim.error_exceeds(r.report_delta)
    }
    notes = "".join(f" Epsilon of {name} is {says}." for name, says in sorted(doubtful.items()))
    right = max(record.claim.advantage for record in records)
    means = f"anyone who guesses {_secret(records)} is right at most {_percent((1 + right) / 2)} of the time"
    return f"{claims}: epsilon {promised_epsilon(records)} at {at_delta(records)}; {means}.{notes}"


def promised_epsilon(records: tuple[AuditRecord, ...]) -> str:
    """Epsilons that the claims allow, from smallest to largest."""
    claimed = [record.claim.epsilon for record in records if record.claim.source != NOT_BUILT]
    epsilons = sorted({round(epsilon, 12) for epsilon in claimed if epsilon is not None})
    if not epsilons:
        return "not known"
    least, most = at_most(epsilons[0]), at_most(epsilons[-1])
    return least if least == most else f"{least} to {most}"


def at_delta(records: tuple[AuditRecord, ...]) -> str:
    """The delta at which epsilons are reported."""
    deltas = sorted({record.report_delta for record in records})
    return f"delta {deltas[0]:g}" if len(deltas) == 1 else "the delta of each audit"


def _proven(records: tuple[AuditRecord, ...]) -> str:
    broken = [record for record in records if record.verdict == "violation"]
    open_ones = sum(record.verdict == "inconclusive" for record in records)
    risk = sum(record.risk for record in records)
    unrun = sum(not record.ran for record in records)
    more = f" {counted(open_ones, 'audit')} could not tell." if open_ones else ""
    more += f" {counted(unrun, 'audit')} could not run." if unrun else ""
    if unrun == len(records):
        return "Nothing: no audit could run."
    if not broken:
        return f"No audit found a violation.{more} All lower bounds hold together at risk {risk:.3g}{but_for(records)}."
    worst, says = largest_excess(records)
    return (
        f"{_capital(leaking(records))}. The largest proven "
        f"excess: {worst.name}, {says}.{more} The chance that any of this is wrong is at most "
        f"{at_most(risk)}{but_for(records)}."
    )


def leaking(records: Sequence[AuditRecord]) -> str:
    """How many audits found a violation; those that the suite expects (controls) are counted separately."""
    known = sum(record.verdict == "violation" == record.expect for record in records)
    new = sum(record.verdict == "violation" for record in records) - known
    if not new:
        return f"{known} of {counted(len(records), 'audit')} leak{'s' * (known == 1)} more than promised, as expected"
    if len(records) == 1:
        return "it leaks more than promised"
    besides = f", besides the {counted(known, 'violation')} that the suite expects" if known else ""
    return f"{new} of {counted(len(records) - known, 'audit')} leak{'s' * (new == 1)} more than promised{besides}"


def largest_excess(records: tuple[AuditRecord, ...]) -> tuple[AuditRecord, str]:
    """The violation with the largest excess of epsilon over the promised one, in words; else the largest of delta."""
    broken = [record for record in records if record.verdict == "violation"]
    worst = max(broken, key=_excess)
    if _excess(worst) <= 0:
        worst = max(broken, key=_excess_of_delta)
        return worst, what_broke(worst)
    proven = f"epsilon at least {at_least(worst.epsilon(worst.report_delta))} at delta {worst.report_delta:g}"
    return worst, f"{proven} where {promised_epsilon((worst,))} is promised"


def what_broke(record: AuditRecord) -> str:
    """Where the claim of a violation is exceeded; if no place on its curve is known, that all of it is refuted."""
    if record.violated_at is not None:
        return record.violated_at.says.rstrip(".")
    refuted = f"refuted as a whole (p-value {readable_p_value(record.p_value).replace('≤', 'at most')})"
    if _excess(record) > 0 or record.claim.epsilon is None:
        return f"the claim is {refuted}"
    proven = f"the proven epsilon {at_least(record.epsilon(record.report_delta))} at delta {record.report_delta:g}"
    though = f"though {proven} is not above the promised {promised_epsilon((record,))}"
    return f"the claimed curve is {refuted}, {though}{refuted_gaussian(record)}"


def in_a_sentence(broken: str) -> str:
    """A violated number in prose: 'mu is at least 2, and the claim allows at most 1'."""
    return re.sub(r": (at least \S+), claimed (at most [\d.e-]+)", r" is \1, and the claim allows \2", broken)


def _excess(record: AuditRecord) -> float:
    """How far the proven epsilon is above the claimed one, if the claimed one is known."""
    claimed = record.claim.epsilon
    return -math.inf if claimed is None else record.epsilon(record.report_delta) - claimed


def _excess_of_delta(record: AuditRecord) -> float:
    """How far a proven delta is above the claimed one; 0 if only the counts together refute the claim."""
    at = record.violated_at
    return at.at_least - at.claimed if at is not None and at.number == "delta" and at.at_least is not None else 0.0


def _to_do(records: tuple[AuditRecord, ...]) -> str:
    parts = [expected_not_found(records), _to_do_besides(records)]
    if any(record.verdict == "violation" != record.expect for record in records):
        parts.reverse()
    return " ".join(filter(None, parts))


def _to_do_besides(records: tuple[AuditRecord, ...]) -> str:
    """What to do about everything except expected violations that were not found."""
    surprises = [record for record in records if not record.as_expected]
    broken = [record for record in surprises if record.verdict == "violation"]
    unrun = [repr(record.name) for record in surprises if not record.ran]
    if broken:
        names = listed([repr(record.name) for record in broken], most=3)
        suspected = [record for record in broken if suspects(record.diagnoses)]
        which = f" in {len(suspected)} of them" if len(suspected) < len(broken) else ""
        where = f"; see what looks wrong{which}." if suspected else "."
        close = [repr(record.name) for record in broken if close_call(record)]
        whose = f" of {listed(close, most=3)}" if len(close) < len(broken) else ""
        confirm = (
            f" The p-value{whose} is close to the risk: confirm {again(broken)} at a smaller risk." if close else ""
        )
        fix = f" Fix what kept {listed(unrun, most=3)} from running." if unrun else ""
        first = "Check what is vouched for. If it holds, do" if any(record.conditions for record in broken) else "Do"
        return f"{first} not rely on the promise of {names}{where}{fix}{confirm} {_to_look_at(records)}".rstrip()
    if unrun:
        return f"Fix what kept {listed(unrun, most=3)} from running, and run the same command again."
    if open_ones := [record for record in surprises if record.verdict == "inconclusive"]:
        whose = f" about {listed([repr(r.name) for r in open_ones], most=3)}" if len(open_ones) < len(records) else ""
        undecided = f"Nothing is proven either way{whose}."
        return " ".join(filter(None, (_to_look_at(records), undecided, look_again(open_ones))))
    if surprises:
        return _to_look_at(records)
    if shown := _to_look_at(records):
        return shown
    known = sum(record.verdict == "violation" for record in records)
    if known:
        return f"Nothing: this suite expects {'the violation' if known == 1 else f'all {known} violations'}."
    called = all(record.suite is None and record.expect == "no_violation_found" for record in records)
    nothing = f"Nothing: {'no violation was found' if called else 'every verdict is as expected'}."
    if all(record.conditions for record in records):
        return nothing
    kept = "audit" if all(record.suite is None for record in records) else "suite"
    for record in records:
        if record.verdict == "no_violation_found" and _of_the_user(record):
            return f"{nothing} Keep the {kept} in CI, and let {_replay(record)}."
    return f"{nothing} Keep the {kept} in CI to catch a change that leaks."


def _to_look_at(records: tuple[AuditRecord, ...]) -> str:
    """What a replay or the outputs show for audits without a violation: known faults come before more trials."""
    passed = [record for record in records if record.verdict != "violation"]
    replayed = [repr(record.name) for record in passed if code_lines(record.diagnoses)]
    first = ["{}:{}".format(*lines[0]) for record in passed if (lines := code_lines(record.diagnoses))]
    hinted = [repr(r.name) for r in passed if not code_lines(r.diagnoses) and looks_wrong(r.diagnoses)]
    sentences = []
    if replayed:
        where = listed(list(dict.fromkeys(first)), most=3)
        sentences.append(f"Check {where}, which a replay of {listed(replayed, most=3)} suspects; {UNCONFIRMED}.")
    if hinted:
        sentences.append(f"Look at what the outputs of {listed(hinted, most=3)} hint at, which is not a violation.")
    return " ".join(sentences)


def _of_the_user(record: AuditRecord) -> bool:
    """Whether the audited code has lines of the user that a replay can follow, judged by its function's name."""
    # what callable_step was given is followed where it draws with PyTorch
    followed = "function" not in record.mechanism.parameters or "torch" in record.environment
    return followed and not record.conditions and record.mechanism.name not in {*MECHANISMS, *COLLAPSED}


def listed(names: list[str], most: int = 4) -> str:
    """Names with commas between them; if there are many the last ones are only counted."""
    if len(names) <= most + 1:
        return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
    return f"{', '.join(names[:most])} and {len(names) - most} more"
