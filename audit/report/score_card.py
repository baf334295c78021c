"""What scores or outputs from files prove without a claim, as a Markdown table: a record would need a claim."""

from __future__ import annotations

from audit.report.escaping import markdown_text
from audit.report.statement import ABSENCE
from audit.trials.versions import version_of
from audit.verdict.score_bounds import ScoreBounds
from guarantees.numerics.rounding import at_least


def score_card(found: ScoreBounds, *, delta: float, files: tuple[str, str]) -> str:
    """The fields of a model card that scores can fill; the code that drew them is unknown here."""
    judged = found.tests[0].counts
    rows = {
        "scores" if found.learned_from is None else "outputs": f"{files[0]} without the record, {files[1]} with it",
        f"proven epsilon at delta {delta:g}": f"at least {at_least(found.epsilon(delta))}",
        "proven delta at epsilon 0": f"at least {at_least(found.delta(0.0))}",
        "proven mu": f"at least {at_least(found.mu)}",
        "risk of a wrong bound": f"{found.risk:g} for all together",
        "judged": f"{judged.trials_without:,} trials without the record, {judged.trials_with:,} with it",
        **(
            {}
            if found.learned_from is None
            else {"learned a score": "{:,} and {:,} others".format(*found.learned_from)}
        ),
        "valid if": "; ".join(found.conditions),
        "tool": f"dpsgd-audit bound, version {version_of('dpsgd-audit')}",
    }
    table = [f"| {name} | {markdown_text(value)} |" for name, value in rows.items()]
    head = "## Differential privacy: bounds from files"
    return "\n".join([head, "", "| field | value |", "|---|---|", *table, "", ABSENCE, ""])
