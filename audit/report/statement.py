"""Records as sentences for a methods section, and as a model card: plain text to paste anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from audit.record.record import AuditRecord, ClaimPart
from audit.report.audited import (
    NOT_REPEATABLE,
    audited,
    command,
    differ_by,
    how_many,
    libraries,
    trains,
    unit_of_privacy,
)
from audit.report.caveats import ended_early, expected_not_found, other_than_told
from audit.report.diagnoses import REPLAYED, but_for, heading, in_a_paper, in_a_row, looks_wrong, not_independent
from audit.report.escaping import markdown_text, shown
from audit.report.given import conditions_once, judged_scores, source, vouched
from audit.report.promises import covered, in_words, scored_by
from audit.report.story import in_a_sentence, what_broke
from audit.report.table import broken_at, readable
from audit.verdict.verdict import VERDICTS
from dpsgd_audit.spelling import counted
from guarantees.numerics.rounding import at_least, at_most

UNKNOWN = "not stated in the record"
SAMPLERS = ("sampler", "sampling", "poisson_sampling", "batch_size", "rate", "sample_rate", "event")
DIVISORS = ("normalise_by", "loss_reduction", "expected_batch_size", "divisor")
RELEASED = {"update": "one update of ", "transcript": "all updates of ", "final": "the final weights of "}
POISSON = ("subsampled_gaussian", "poisson_training", "opacus_claim", "claim_from_history")
"""Claims that assume Poisson batches at a rate that they state."""
PURE = ("epsilon_delta", "laplace", "randomised_response")
"""Claims of an epsilon at delta 0, the first only if it states no delta."""
ABSENCE = "Finding no violation does not prove privacy."


def statement(records: tuple[AuditRecord, ...]) -> str:
    """Sentences on what was tested, how often, by which bound, at which risk, and with what result."""
    risk = sum(record.risk for record in records)
    versions = ", ".join(sorted({str(record.environment.get("dpsgd_audit", "unknown")) for record in records}))
    lines = [
        f"We audited {how_many(records)} with dpsgd-audit {versions}{_beside(records)}. "
        f"All lower bounds hold together with probability at least {at_least(1 - risk, '.4g')}{but_for(records)}."
    ]
    records = tuple(map(shown, records))
    designs = _designs(records)
    lines += [_together(records)] if len(records) > 1 else []
    lines += [_shared(design, names, len(records)) for design, names in designs.items()]
    sentences = _missed_once(records, [_sentence(record, shared=_design(record) in designs) for record in records])
    lines += conditions_once(sentences, map(vouched, records))
    lines += [missed] if (missed := expected_not_found(records)) else []
    return "\n\n".join([*lines, ABSENCE]) + "\n"


def _design(record: AuditRecord) -> str:
    """How outputs were drawn and what is claimed about them; empty if that is the audit's own."""
    if not record.ran or record.conditions:
        return ""
    return _tested(record, of=audited(record).replace(record.mechanism.name, "the audited code", 1))


def _designs(records: tuple[AuditRecord, ...]) -> Mapping[str, list[str]]:
    """The different designs of several audits, with the audits' names."""
    found: dict[str, list[str]] = {}
    for record in records:
        found.setdefault(_design(record), []).append(record.name)
    return {design: names for design, names in found.items() if design and len(names) > 1}


def _shared(design: str, names: list[str], of: int) -> str:
    if len(names) == of:
        return f"For each, {design}"
    return f"For each of {', '.join(map(repr, names))}: {design}"


def _together(records: tuple[AuditRecord, ...]) -> str:
    """Which audits had which verdict, before each is described."""
    verdicts = {verdict: [repr(r.name) for r in map(shown, records) if r.verdict == verdict] for verdict in VERDICTS}
    parts = [f"{readable(verdict)}: {', '.join(names)}" for verdict, names in verdicts.items() if names]
    return f"{'. '.join(one[0].upper() + one[1:] for one in parts)}."


def _beside(records: tuple[AuditRecord, ...]) -> str:
    """The versions with which the audits ran, if all records agree."""
    found = [{(name, r.environment.get(name)) for name in ("jax", "numpy", "python")} for r in records]
    versions = [f"{name} {version}" for name, version in sorted(set.intersection(*found)) if version] if found else []
    return f" ({', '.join(versions)})" if versions else ""


def _missed_once(records: tuple[AuditRecord, ...], paragraphs: list[str]) -> list[str]:
    """The sentences, with what passed audits would have found said only once if it is the same."""
    sentences, first = [], dict[str, str]()
    for record, paragraph in zip(records, paragraphs, strict=True):
        reason = record.reason.rstrip(".")
        again = record.verdict == "no_violation_found" and first.setdefault(reason, record.name) != record.name
        sentences.append(
            paragraph.replace(reason, f"it would have found what {first[reason]!r} would") if again else paragraph
        )
    return sentences


def _sentence(record: AuditRecord, *, shared: bool) -> str:
    """The result of one audit, and what was tested, unless that is ``shared`` and said already."""
    if not record.ran:
        return f"{record.name}: could not be audited against {in_words(record.claim)}. {record.reason}"
    named = f" ({record.mechanism.name})" if shared and record.mechanism.name != record.name else ""
    tested = "" if shared else f"{_tested(record, of=audited(record))} "
    return (
        f"{record.name}{named}: {tested}{_proven(record)} "
        f"Verdict: {readable(record.verdict)}{_why(record)}.{_suspected(record)}{_ended(record)}"
    )


def _proven(record: AuditRecord) -> str:
    epsilon, delta, at = record.epsilon(record.report_delta), record.delta(0.0), f"{record.report_delta:g}"
    if not (epsilon or delta or record.mu):
        return f"The counts prove no epsilon above 0 at delta {at}, no delta above 0 at epsilon 0 and no mu above 0."
    # of one training a delta says next to nothing: it counts for every canary
    leaks = "" if record.one_run is not None else f", a delta of at least {at_least(delta)} at epsilon 0"
    mu = f"a mu of at least {at_least(record.mu)}"
    return f"The counts prove an epsilon of at least {at_least(epsilon)} at delta {at}{leaks} and {mu}."


def _tested(record: AuditRecord, *, of: str) -> str:
    claimed = f"{in_words(record.claim)}: epsilon {record.claim.epsilon_at(record.report_delta)}"
    return f"{_drawn(record, of=of)} The claim is {claimed}."


def _suspected(record: AuditRecord) -> str:
    """What looks wrong, as a separate sentence."""
    suspicion = in_a_paper(record)
    return f" {suspicion[0].upper()}{suspicion[1:]}" if suspicion else ""


def _ended(record: AuditRecord) -> str:
    """Why the numbers of an audit that stopped early are small: they stand beside a far larger claim."""
    note = ended_early(record)
    return f" {note[:1].upper()}{note[1:]}" if note else ""


def _why(record: AuditRecord) -> str:
    """Where the claim is violated; without a violation the leak that would have been found, or what was missing."""
    if record.verdict != "violation":
        return f"; {record.reason.rstrip('.')}"
    broken = record.violated_at
    if broken is not None and (broken.number, broken.given) == ("epsilon", record.report_delta):
        # both numbers stand before it
        return ""
    return f"; {in_a_sentence(what_broke(record))}"


def _drawn(record: AuditRecord, *, of: str) -> str:
    """What the bounds rest on: outputs ``of`` something."""
    relation = differ_by(record)
    if record.one_run is not None:
        most = at_most(record.one_run.most(record.report_delta))
        return (
            f"{record.one_run.counted}. Each coin decides about {relation}. {vouched(record)} "
            f"All guesses right would have proven at most epsilon {most}."
        )
    if record.scores is not None:
        return f"we judged {judged_scores(record)}. {vouched(record)}"
    return (
        f"{record.trials_per_side:,} outputs of {of} were drawn on each of two datasets that differ "
        f"by {relation} (pair: {record.neighbours.name}), and scored by "
        f"{scored_by(record.distinguisher.name)}.{_repeated(record)}"
    )


def _repeated(record: AuditRecord) -> str:
    return f" The outputs are {NOT_REPEATABLE}." if record.repeatable is False else ""


def model_card(records: tuple[AuditRecord, ...], *, title: str) -> str:
    """Markdown with the fields that guides for reporting differential privacy ask for, audit by audit."""
    parts = [f"## Differential privacy: {markdown_text(title)}"]
    if len(records) > 1:
        parts += ["", "| audit | verdict | number | proven | promised |", "|---|---|---|---|---|"]
        parts += [_row(record) for record in map(shown, records)]
    for record in map(shown, records):
        rows = [f"| {name} | {markdown_text(value)} |" for name, value in _fields(record).items()]
        parts += ["", f"### {markdown_text(record.name)}", "", "| field | value |", "|---|---|", *rows]
    missed = expected_not_found(tuple(map(shown, records)))
    parts += ["", markdown_text(missed)] if missed else []
    return "\n".join([*parts, "", ABSENCE, ""])


def _row(record: AuditRecord) -> str:
    """The answer of one audit in the card's first table: of a violation the number that broke the claim."""
    delta, promised = _promised(record)
    proven = f"at least {at_least(record.epsilon(delta))}" if record.ran else "-"
    number = f"epsilon at delta {delta:g}"
    numbers = broken_at(record) or (number, proven, promised.removesuffix(number.removeprefix("epsilon")))
    cells = (record.name, readable(record.verdict), *numbers)
    return f"| {' | '.join(map(markdown_text, cells))} |"


def _fields(record: AuditRecord) -> Mapping[str, str]:
    claim, kind = record.claim, record.neighbours.kind
    if not record.ran:
        return {
            "audited": record.mechanism.name,
            "accountant": claim.describe(),
            "verdict": readable(record.verdict),
            "reason": record.reason,
        }
    return {
        "unit of privacy": unit_of_privacy(record),
        "relation": f"{kind or 'not stated by the claim'} ({differ_by(record)})",
        "promise covers": covered(record),
        "adversary sees": f"{claim.observation} (as the claim assumes)",
        "auditor saw": _seen(record),
        "accountant": _accountant(claim),
        **_promise(record),
        **(_batches(record) if trains(record) else {}),
        **({"seen in a run": other} if (other := other_than_told(record)) else {}),
        **({"command": ran} if (ran := command(record)) else {}),
        **({"audited with": beside} if (beside := libraries(record)) else {}),
        "proven epsilon": f"at least {at_least(record.epsilon(_promised(record)[0]))}",
        **({} if record.one_run else {"proven delta at epsilon 0": f"at least {at_least(record.delta(0.0))}"}),
        "proven mu": f"at least {at_least(record.mu)}",
        "risk of a wrong bound": _risk(record),
        **(
            {"guesses": record.one_run.told(record.report_delta)}
            if record.one_run is not None
            else {"trials": f"{record.trials:,}" if record.scores is None else judged_scores(record)}
        ),
        **({"valid if": "; ".join(record.conditions)} if record.conditions else {}),
        **({"repeatable": NOT_REPEATABLE} if record.repeatable is False else {}),
        "verdict": readable(record.verdict),
        **({"violated": f"{what_broke(record)}."} if record.verdict == "violation" else {}),
        **_suspicion(record),
        **({} if record.verdict == "violation" else {"what these trials could show": record.reason}),
        "tool": f"dpsgd-audit {record.environment.get('dpsgd_audit', 'unknown')}, {record.started[:10]}",
    }


def _batches(record: AuditRecord) -> Mapping[str, str]:
    """How a training draws its batches, and its divisor."""
    seen, stated = record.environment, record.mechanism.parameters
    return {
        "sampler assumed": _assumed(record.claim),
        "sampler used": seen.get("sampler") or _stated(stated, SAMPLERS),
        "divisor": seen.get("divisor") or _stated(stated, DIVISORS),
    }


def _suspicion(record: AuditRecord) -> Mapping[str, str]:
    """What looks wrong: why the claim is violated, or what a replay shows without a violation."""
    wrong = in_a_row(looks_wrong(record.diagnoses))
    if not wrong:
        return {}
    if record.verdict == "violation":
        return {"what looks wrong": wrong}
    shown = "what a replay shows" if heading(record) == REPLAYED else "a hint from the outputs"
    return {shown: f"{wrong} (Not a violation: only the trials decide the verdict.)"}


def _seen(record: AuditRecord) -> str:
    """The observation that the bounds rest on, which may be less than the claim's adversary sees."""
    if record.scores is not None:
        return f"given {record.scores.what}: {source(record)}"
    if record.one_run is not None:
        unknown = f"{UNKNOWN} from which releases (the final model's losses or all updates, say)"
        return f"one score for each canary; {record.environment.get('auditor_saw', unknown)}"
    released = RELEASED.get(record.releases, "outputs of ") if trains(record) else "one output of "
    return f"{released}{record.mechanism.name}"


def _promise(record: AuditRecord) -> Mapping[str, str]:
    """Epsilon with its delta; a pure epsilon holds at delta 0, where nothing can be proven about it."""
    claim = record.claim
    if claim.name in PURE and not claim.parameters.get("delta") and claim.times == 1:
        pure = f"{at_most(claim.parameters['epsilon'])} at delta 0 (pure)"
        return {"promised epsilon": pure, "delta": f"0; bounds are proven at {record.report_delta:g}"}
    delta, epsilon = _promised(record)
    promised = {"promised epsilon": epsilon, "delta": f"{delta:g}"}
    mu = claim.parameters.get("mu") if claim.name == "gaussian" else None
    return promised if mu is None else {**promised, "promised mu": at_most(float(mu) * math.sqrt(claim.times))}


def _promised(record: AuditRecord) -> tuple[float, str]:
    """A delta and the claim's epsilon there; the claim's own delta where it promises nothing at the record's."""
    claim, delta = record.claim, record.report_delta
    stated = claim.parameters.get("delta", 0.0) if claim.name == "epsilon_delta" and claim.times == 1 else 0.0
    if claim.epsilon == math.inf and stated:
        return stated, f"{at_most(claim.parameters['epsilon'])} at delta {stated:g}"
    return delta, claim.epsilon_at(delta)


def _accountant(claim: ClaimPart) -> str:
    """The claim and where its curve comes from; stated numbers have no accountant."""
    if claim.name == "epsilon_delta":
        return f"none in the record: {claim.describe()}, as stated"
    return claim.describe() + (f" ({claim.source})" if claim.source else "")


def _risk(record: AuditRecord) -> str:
    together = "" if record.suite is None else f", {record.suite.risk:g} for all {record.suite.audits} of its suite"
    but = f", but its trials {how}" if (how := not_independent(record)) else ""
    return f"{at_most(record.risk)} for this audit{together}{but}"


def _assumed(claim: ClaimPart) -> str:
    """How the claim assumes batches to be drawn."""
    given = claim.parameters
    history = given.get("history") or [(None, given.get("sample_rate", given.get("rate")), claim.steps or 1)]
    if claim.name not in POISSON or any(rate is None for _, rate, _ in history):
        return _stated(given, SAMPLERS)
    return "; ".join(f"Poisson batches at rate {rate:.4g}, {counted(steps, 'step')}" for _, rate, steps in history)


def _stated(parameters: Mapping[str, Any], names: tuple[str, ...]) -> str:
    found = [f"{name} = {parameters[name]}" for name in names if parameters.get(name) is not None]
    return ", ".join(found) or UNKNOWN
