"""Text for papers: a methods paragraph, and the BibTeX entries of the sources that it cites."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

import numpy as np

from audit.bounds.bounded_numbers import EpsilonAt
from audit.power.less_noise import in_so_many_runs, sampled, told_in
from audit.power.power import POWER, noise_at
from audit.record.record import AuditRecord, ClaimPart
from audit.report.audited import NOT_REPEATABLE, differ_by, how_many, libraries
from audit.report.ceiling import most_epsilon
from audit.report.diagnoses import but_for, in_a_paper
from audit.report.escaping import latex_name, latex_text, visible
from audit.report.formulas import formula, number
from audit.report.given import judged_scores, vouched
from audit.report.promises import scored_by
from audit.report.statement import ABSENCE
from audit.report.story import in_a_sentence, listed, what_broke
from audit.report.table import readable
from audit.verdict.proven_numbers import stated
from guarantees.laws.composition import SOURCES
from guarantees.numerics.rounding import at_least, at_most

TOOL = """@misc{dpsgdaudit,
  author = {{The dpsgd-audit maintainers}},
  title = {dpsgd-audit: find out whether a {DP-SGD} implementation keeps its privacy promise},
  note = {Version VERSION},
  year = {2026},
}
"""
ENTRY = re.compile(r"^@\w+\{(\w+),.*?^\}\n", flags=re.MULTILINE | re.DOTALL)
BOUNDS = {
    "joint": ("the joint exact test of both error counts, inverted", ("buehler1957", "bergerboos1994")),
    "rectangle": ("Clopper--Pearson limits on both error rates", ("clopper1934",)),
    "guesses": ("counts of right guesses", ("mahloujifar2024", "steinke2023")),
    "band": ("limits on both error rates at all thresholds at once", ("owen1995", "moscovich2017")),
    "anytime": ("betting e-processes, valid at any stopping time", ("ville1939", "waudbysmith2024")),
}


def methods(records: tuple[AuditRecord, ...]) -> str:
    """Paragraphs on what was found, how it was tested, by which bound and at which risk, ready to paste."""
    ran = tuple(record for record in records if record.ran)
    verdicts = [*_suspected(ran), *_by_name(records)]
    if not ran:
        return " ".join(verdicts)
    drawn = tuple(record for record in ran if not record.conditions)
    named = listed([f"``{latex_name(record.name)}''" for record in drawn])
    sure = at_least(1 - sum(record.risk for record in records), ".4g")
    audited = [
        f"We audited {how_many(records, of=f' ({named})')} with dpsgd-audit \\citep{{dpsgdaudit}} "
        f"(version {latex_text(_version(ran))}).",
        *_ran_with(drawn),
        f"All bounds hold together with probability at least ${sure}${but_for(ran, latex_name)}.",
        *verdicts,
        ABSENCE,
    ]
    paragraphs = [audited, _drawn(drawn, of_all=drawn == ran), *([each] for each in _elsewhere(ran))]
    return "\n\n".join(" ".join(sentences) for sentences in paragraphs if sentences)


def _drawn(records: tuple[AuditRecord, ...], *, of_all: bool) -> list[str]:
    """Sentences on the audits whose trials we drew: how many, by which bounds, of which claims, with which power."""
    if not records:
        return []
    deltas = sorted({record.report_delta for record in records})
    trials = sorted({record.trials_per_side for record in records})
    scores = sorted({scored_by(record.distinguisher.name) for record in records})
    claims = sorted({_claimed(record.claim) for record in records})
    how, cited = zip(*(BOUNDS[kind] for kind in sorted({_method(record) for record in records})), strict=True)
    sources = f"\\citep{{{','.join(sorted({key for keys in cited for key in keys}))}}}"
    span = f"{trials[0]:,}" if len(trials) == 1 else f"{trials[0]:,} to {trials[-1]:,}"
    early = any(record.stops_early for record in records)
    relations = "; ".join(sorted({latex_name(differ_by(record)) for record in records}))
    return [
        f"For each{'' if of_all else ' configuration'} we drew {span.replace(',', '{,}')} outputs on each of "
        f"two neighbouring datasets ({relations}) and scored them by {', '.join(map(latex_name, scores))}.",
        f"Lower bounds on $\\varepsilon$ (at $\\delta = {_list(deltas)}$), $\\delta$ and $\\mu$ follow from the "
        f"counts of false alarms and misses by {' or '.join(how)} {sources}.",
        *(["Audits could end early; their bounds hold at every time."] if early else []),
        f"We audited against {'this claim' if len(claims) == 1 else f'{len(claims)} claims'}: "
        f"{'; '.join(claims[:6])}{'; and others' if len(claims) > 6 else ''}.",
        *_power(records),
        *_changing(records),
    ]


def _ran_with(records: tuple[AuditRecord, ...]) -> list[str]:
    """Libraries of the audited code with their versions, if records say."""
    every = {libraries(record) for record in records} - {""}
    parts = {each: {*each.split(", ")} for each in every}
    found = sorted(each for each in every if not any(parts[each] < parts[other] for other in every))
    names = "; ".join(latex_text(visible(each).replace("==", " ")) for each in found)
    return [f"The audited code ran with {names}."] if found else []


def _changing(records: tuple[AuditRecord, ...]) -> list[str]:
    """Audits whose outputs cannot be repeated."""
    names = [latex_name(record.name) for record in records if record.repeatable is False]
    return [f"{NOT_REPEATABLE.capitalize()} ({'; '.join(names)})."] if names else []


def _power(records: tuple[AuditRecord, ...]) -> list[str]:
    """A sentence on the leaks that every audit without a violation would have found, and where they must show."""
    green = [record for record in records if record.verdict == "no_violation_found"]
    found = [_largest(r"an advantage of ${}$ above its claim", ".2g", [r.detectable_advantage_excess for r in green])]
    if not any(sampled(record.claim) for record in green):
        found += [_gaussian_leak(green)]
    leaks, less = [leak for leak in found if leak], _less_noise(green)
    which = f"each of the {len(green)} audits that found no violation"
    if len(green) == 1:
        which = f"the audit ``{latex_name(green[0].name)}'', which found no violation,"
    where = "on its pair, with its scores and thresholds"
    parts = [f"{which} would have found {' or '.join(leaks)} ({where})"] if leaks else []
    parts += [f"this many trials can find {less}"] if less else []
    return [f"{in_so_many_runs(POWER).capitalize()}, {'; '.join(parts)}."] if parts else []


def _less_noise(green: list[AuditRecord]) -> str:
    """The noise multiplier that all of them would have found, if it is the same for all."""
    multipliers = {told_in(record.reason) for record in green}
    (only,) = multipliers if len(multipliers) == 1 else {None}
    return only or ""


def _gaussian_leak(green: list[AuditRecord]) -> str:
    """The largest of the audits' smallest Gaussian leaks, in mu if all claims are."""
    epsilons = [record.detectable_epsilon for record in green]
    where = ", if the thresholds suit it"
    if not all(record.claim.name == "gaussian" for record in green):
        return _largest(rf"a Gaussian mechanism with $\varepsilon = {{}}${where}", ".3g", epsilons)
    mus = [
        None if epsilon is None else float(1 / noise_at(np.array([epsilon]), record.report_delta)[0])
        for epsilon, record in zip(epsilons, green, strict=True)
    ]
    return _largest(rf"a Gaussian mechanism with $\mu = {{}}${where}", ".3g", mus)


def _largest(words: str, digits: str, sizes: list[float | None]) -> str:
    """The largest size, rounded up; empty if one is missing."""
    known = [size for size in sizes if size is not None]
    return words.format(at_most(max(known), digits)) if len(known) == len(sizes) > 0 else ""


def _elsewhere(records: Sequence[AuditRecord]) -> list[str]:
    """Paragraphs on audits with trials that we did not draw: the verdicts, then what each user vouches for."""
    given = [record for record in records if record.conditions]
    names: dict[str, list[str]] = {}
    for record in given:
        names.setdefault(_conditions(record), []).append(f"``{latex_name(record.name)}''")
    vouching = [f"Conditions of the audit{'s' * (len(of) > 1)} {', '.join(of)}. {said}" for said, of in names.items()]
    return [*map(_guessed, given), *vouching]


def _conditions(record: AuditRecord) -> str:
    code, words = f"about {record.neighbours.kind} neighbours", f"about datasets that differ by {differ_by(record)}"
    return _in_symbols(visible(vouched(record)).replace(code, words))


def _guessed(record: AuditRecord) -> str:
    """A sentence about one training with canaries, or about given scores."""
    counts = record.one_run.counted if record.one_run is not None else ""
    counts = judged_scores(record) if record.scores is not None else counts
    how, cited = BOUNDS[_method(record)]
    most, why = most_epsilon(record), record.reason.rstrip(".")
    why = what_broke(record) if record.verdict == "violation" else why
    beyond = "" if most is None else f"; without a single error it would have proven at most ${at_most(most)}$"
    epsilon = record.epsilon(record.report_delta)
    proven = f"$\\varepsilon \\ge {at_least(epsilon)}$" if epsilon > 0 else "no $\\varepsilon$ above $0$"
    return (
        f"The audit ``{latex_name(record.name)}'' is of {latex_text(counts)}. "
        f"Verdict: {latex_text(readable(record.verdict))}; {_in_symbols(why)}. "
        f"It is audited against this claim: {_claimed(record.claim)}. By {how} \\citep{{{','.join(cited)}}} "
        f"the audit proves {proven} at $\\delta = {number(record.report_delta)}${beyond}."
    )


def _claimed(claim: ClaimPart) -> str:
    """A claim's formula as part of a sentence: of a mechanism, not an adjective."""
    return re.sub(
        "^(?:DP, (Laplace)|(subsampled Gaussian)(, composed)?)",
        lambda found: f"the {'composed ' * bool(found[3])}{found[1] or found[2]} mechanism",
        formula(claim),
    )


def _in_symbols(text: str) -> str:
    """A sentence as LaTeX, with epsilons and deltas that have a number as mathematics."""
    text = re.sub(r"[:,] guesses=\[\((\d+), (\d+)\)\]", r" (\1 guessed in, \2 out)", in_a_sentence(text))
    latex = re.sub(
        r"\bdelta (\d[\d.]*(?:e-?\d+)?)", lambda found: f"$\\delta = {number(float(found[1]))}$", latex_text(text)
    )
    latex = re.sub(r"\bepsilon (\d+(?:\.\d+)?)", r"$\\varepsilon = \1$", latex)
    latex = re.sub(r"(?<!\w)'(?=\w)", "`", latex)
    return latex.replace("delta at ", r"$\delta$ at ").replace("epsilon at ", r"$\varepsilon$ at ")


def _suspected(records: tuple[AuditRecord, ...]) -> list[str]:
    """A sentence for every unexpected violation and what looks wrong in it, or beside another verdict."""
    sentences = []
    for record in records:
        # of trials that we did not draw their own sentence tells the verdict
        broken = record.verdict == "violation" and not record.conditions
        parts = [f"violation; {_in_symbols(visible(what_broke(record)))}"] if broken else []
        parts += [latex_text(visible(wrong).removesuffix("."))] if (wrong := in_a_paper(record)) else []
        if parts and not (broken and record.as_expected):
            sentences.append(f"Audit ``{latex_name(record.name)}'': {'; '.join(parts)}.")
    return sentences


def _by_name(records: tuple[AuditRecord, ...]) -> list[str]:
    """Audits that no other sentence names: expected violations, found or not, and those without an answer."""
    groups: dict[tuple[str, str], list[str]] = {}
    for verdict, words in (
        ("violation", "Violations, as expected"),
        ("inconclusive", "Inconclusive"),
        ("could_not_run", "Could not be run"),
    ):
        for record in records:
            # of one training its own sentence tells the verdict
            told = record.conditions and verdict != "violation"
            if record.verdict == verdict and not told and (record.as_expected or verdict != "violation"):
                why = f" ({_in_symbols(visible(record.reason).rstrip('.'))})" if verdict == "inconclusive" else ""
                groups.setdefault((words, why), []).append(latex_name(record.name))
    missed = [one for one in records if one.ran and one.expect == "violation" != one.verdict]
    groups["Expected violations that were not found", ""] = [latex_name(one.name) for one in missed]
    return [f"{words}: {'; '.join(names)}{why}." for (words, why), names in groups.items() if names]


def bibtex(records: tuple[AuditRecord, ...]) -> str:
    """BibTeX entries of the tool and of the sources that the claims and bounds of these records name."""
    text = resources.files("guarantees").joinpath("references.bib").read_text(encoding="utf-8")
    known = {found.group(1): found.group(0) for found in ENTRY.finditer(text)}
    wanted = {key for record in records if record.ran for key in BOUNDS[_method(record)][1]}
    for record in records:
        # of a history the user says where it comes from, and we compose it
        composed = f"zhu2022; {SOURCES}" if record.claim.name == "claim_from_history" else ""
        wanted |= set(re.findall(r"\b[a-z]+[12]\d{3}\b", f"{record.claim.source}; {composed}"))
    tool = TOOL.replace("VERSION", latex_text(_version(records)))
    return "\n".join([tool, *(known[key] for key in sorted(wanted) if key in known)])


def _method(record: AuditRecord) -> str:
    if record.one_run is not None:
        return "guesses"
    if record.stops_early:
        return "anytime"
    if record.scores is not None:
        bound = stated(record.numbers, EpsilonAt(delta=record.report_delta))
        return "joint" if bound >= record.epsilon(record.report_delta) else "band"
    return "joint" if record.numbers else "rectangle"


def _version(records: tuple[AuditRecord, ...]) -> str:
    return ", ".join(sorted({str(record.environment.get("dpsgd_audit", "unknown")) for record in records}))


def _list(numbers: list[float]) -> str:
    return ", ".join(number(each) for each in numbers)
