"""Records for papers: tables and environments for figures."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from audit.record.record import AuditRecord
from audit.report.ceiling import CEILING, most_epsilon
from audit.report.diagnoses import beside_the_verdict, but_for
from audit.report.escaping import latex_name, latex_text
from audit.report.formulas import formula, in_math, number
from audit.report.methods import bibtex, methods
from audit.report.table import NOT_KNOWN, broken_in_short, readable
from guarantees.numerics.rounding import at_least, at_most

NONE_FOUND = "none found"
"""Text in place of 'no violation found' in narrow columns."""
A_PAGE = 14
"""Most audits in one table: long names and notes take room as well."""
MARK = r"$^\dagger$"
MARKED = "the code looks wrong, though the trials show no violation; see the text."
"""Note that explains the mark beside a verdict."""
ITS_FOLDER = (
    r"\makeatletter\providecommand{\CurrentFilePath}{.}\providecommand{\Ginput@path}{}\expandafter\g@addto@macro"
    r"\expandafter\Ginput@path\expandafter{\expandafter{\CurrentFilePath/}}\makeatother"
)
"""LaTeX that finds figures beside the file that includes them, from whatever folder the article is built."""


def _name(record: AuditRecord) -> str:
    """A record's name for a table, on lines of its own, broken after a space or where it may break."""
    return re.sub(r"(?<=[=,+])(?=\S)|(?<=[a-z]/)(?=[a-z])|(?<=\\_)", r"\\allowbreak{}", latex_name(record.name))


def latex(records: tuple[AuditRecord, ...], *, title: str) -> str:
    """A document fragment: the wide table, the methods paragraph, and as comments the BibTeX entries that both cite."""
    entries = "".join(f"% {line}\n" for line in bibtex(records).splitlines())
    return f"{table(records, title=title, wide=True)}\n{methods(records)}\n\n{entries}"


def files(records: tuple[AuditRecord, ...], *, title: str) -> dict[str, str]:
    """The parts of ``latex`` by file name: a table for one column, one for both, the paragraph, the sources."""
    return {
        "table.tex": table(records, title=title, wide=False),
        "table-wide.tex": table(records, title=title, wide=True),
        "methods.tex": "\n".join([r"% needs \usepackage{natbib}", methods(records), ""]),
        "references.bib": bibtex(records),
    }


def table(records: tuple[AuditRecord, ...], *, title: str, wide: bool) -> str:
    """A table with two rows per audit, its name and its proven beside its claimed numbers, for one column or both.

    No type is smaller than a footnote's: what is long goes on in the next line, or stands below the table. Audits that
    no page holds go on in further tables of the same number; longtable knows no columns.
    """
    deltas = sorted({record.report_delta for record in records})
    caption = (
        f"{latex_name(title)}. All lower bounds hold together at risk ${_risk(records)}${but_for(records, latex_name)}"
    )
    caption += "; claimed values in parentheses"
    caption += "; after each name, the number that broke its claim" if any(map(broken_in_short, records)) else ""
    caption += rf"; $\varepsilon$ at $\delta = {number(deltas[0])}$." if len(deltas) == 1 else "."
    claims = list(dict.fromkeys(formula(record.claim) for record in records))
    size = math.ceil(len(records) / math.ceil(len(records) / A_PAGE)) if records else 1
    parts = [records[first : first + size] for first in range(0, len(records), size)] or [records]
    name = f"tab:audit{'-wide' if wide else ''}"
    begins = [
        [rf"\caption{{{caption}}}", rf"\label{{{name}}}"],
        *([[r"\addtocounter{table}{-1}", rf"\caption{{{latex_name(title)}, continued.}}"]] * (len(parts) - 1)),
    ]
    floats = [_float(part, claims, begin, wide=wide) for part, begin in zip(parts, begins, strict=True)]
    return "\n".join([r"% needs \usepackage{booktabs,amsmath}", *floats, ""])


def _float(records: tuple[AuditRecord, ...], claims: list[str], begin: list[str], *, wide: bool) -> str:
    kind, columns, heads = "table", "lrrl", ["audit", r"$\varepsilon$", r"$\delta(0)$", "verdict"]
    if wide:
        kind, columns = "table*", "lrrrrl"
        heads = ["audit", r"$\varepsilon$", "ceiling", r"$\delta$ at $\varepsilon = 0$", r"$\mu$", "verdict"]
    numbered = wide and len(claims) > 1
    columns, heads = (f"{columns}l", [*heads, "claim"]) if numbered else (columns, heads)
    lines = [
        rf"\begin{{{kind}}}",
        # seven columns fit an article of one column, too
        rf"\centering\footnotesize\setlength{{\tabcolsep}}{{{2 if wide else 3}pt}}",
        *begin,
        r"\par\smallskip",
        rf"\begin{{tabular*}}{{\linewidth}}{{@{{\extracolsep{{\fill}}}}{columns}@{{}}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
    ]
    for record in records:
        cells = _cells(record, wide=wide) + ([f"({1 + claims.index(formula(record.claim))})"] if numbered else [])
        # of no width, so that a long name takes no room from the columns
        broken = rf"; {latex_text(said)}" if (said := broken_in_short(record)) else ""
        name = rf"\makebox[0pt][l]{{\parbox[t]{{\linewidth}}{{\raggedright {_name(record)}{broken}\strut}}}} \\*"
        lines += [r"\addlinespace" if record is not records[0] else r"\midrule", name, " & ".join(cells) + r" \\"]
    lines += [r"\bottomrule", r"\end{tabular*}"]
    notes = _notes(records, claims, wide=wide)
    lines += [rf"\par\smallskip\parbox{{\linewidth}}{{\raggedright {' '.join(notes)}}}"] if notes else []
    return "\n".join([*lines, rf"\end{{{kind}}}"])


def _notes(records: tuple[AuditRecord, ...], claims: list[str], *, wide: bool) -> list[str]:
    """Text below a table: explanations of its cells, and the claims in full."""
    notes = [CEILING] if wide else []
    notes += [rf"{MARK}: {MARKED}"] if any(map(beside_the_verdict, records)) else []
    if not wide:
        some = any(record.verdict == "no_violation_found" for record in records)
        return [*notes, *([f"``{NONE_FOUND.capitalize()}'': no violation found."] if some else [])]
    formulas = {formula(record.claim) for record in records}
    numbered = [f"({place})~{claim}" for place, claim in enumerate(claims, 1) if claim in formulas]
    return [*notes, f"Claim: {claims[0]}." if len(claims) == 1 else f"Claims: {'; '.join(numbered)}."]


def figures(records: tuple[AuditRecord, ...], names: Sequence[str]) -> str:
    """An environment for each file that ``save_figures`` wrote, as wide as the column, and for that of all audits."""
    alone = [record for record in records if record.drawn]
    captions = [
        f"{latex_name(record.name)}: miss rate against false-alarm rate, linear and logarithmic." for record in alone
    ]
    captions.append(
        "Proven and claimed $\\varepsilon$ of all audits. Where a bar is filled the claim is violated, "
        "there or at another point of its curve."
    )
    lines = [r"% needs \usepackage{graphicx}", ITS_FOLDER]
    for place, (name, caption) in enumerate(zip(names, captions, strict=False), start=1):
        lines += [
            r"\begin{figure}",
            r"\centering",
            rf"\includegraphics[width=\linewidth,height=.8\textheight,keepaspectratio]{{{name}}}",
            rf"\caption{{{caption} Bounds hold at risk ${_risk(records)}$ together.}}",
            rf"\label{{fig:audit-{place}}}",
            r"\end{figure}",
        ]
    return "\n".join([*lines, ""])


def _cells(record: AuditRecord, *, wide: bool) -> list[str]:
    most = most_epsilon(record)
    claimed = NOT_KNOWN if record.claim.epsilon is None else f"${in_math(at_most(record.claim.epsilon))}$"
    epsilon = f"{at_least(record.epsilon(record.report_delta))} ({claimed})"
    # of one training it says next to nothing: a delta counts for every canary
    advantage = "--" if record.one_run is not None else at_least(record.delta(0.0))
    advantage += f" (${in_math(at_most(record.claim.advantage))}$)"
    verdict = latex_text(readable(record.verdict))
    if not wide and record.verdict == "no_violation_found":
        verdict = NONE_FOUND
    verdict += MARK if beside_the_verdict(record) else ""
    sample = rf"\enspace {record.sample.replace(',', '{,}')}"
    if not record.ran:
        return [r"\enspace --", *["--"] * (4 if wide else 2), verdict]
    if not wide:
        return [sample, epsilon, advantage, verdict]
    return [sample, epsilon, "--" if most is None else at_most(most), advantage, at_least(record.mu), verdict]


def _risk(records: tuple[AuditRecord, ...]) -> str:
    return f"{sum(record.risk for record in records):.3g}"
