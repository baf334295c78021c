"""What scores or outputs from files prove, as a Markdown table: for a model card, a pull request or a colleague."""

from __future__ import annotations

from audit.report.escaping import markdown_text
from audit.report.statement import ABSENCE
from audit.report.table import readable
from audit.scores import ScoreBounds
from audit.trials.versions import version_of
from guarantees.claim import Claim
from guarantees.numerics.rounding import at_least, at_most


def score_card(found: ScoreBounds, *, claim: Claim | None, delta: float, files: tuple[str, str]) -> str:
    """The fields of a model card that scores can fill; nobody knows here what code drew them."""
    judged = found.tests[0].counts
    rows = {
        "scores" if found.learned_from is None else "outputs": f"{files[0]} without the record, {files[1]} with it",
        **({} if claim is None else _promised(claim, delta)),
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
        **_verdict(found),
        "valid if": "; ".join(found.conditions),
        "tool": f"dpsgd-audit bound, version {version_of('dpsgd-audit')}",
    }
    table = [f"| {name} | {markdown_text(value)} |" for name, value in rows.items()]
    head = "## Differential privacy: bounds from files"
    return "\n".join([head, "", "| field | value |", "|---|---|", *table, "", ABSENCE, ""])


def _promised(claim: Claim, delta: float) -> dict[str, str]:
    relation = "not stated by the claim" if claim.relation == "any" else claim.relation
    return {
        "relation": relation,
        "claim": claim.describe(),
        f"promised epsilon at delta {delta:g}": at_most(claim.epsilon(delta)),
    }


def _verdict(found: ScoreBounds) -> dict[str, str]:
    judgement = found.judgement
    if judgement is None:
        return {}
    broken = judgement.violated_at
    where = {"what these trials could show": judgement.reason} if broken is None else {"violated": broken.says}
    return {"verdict": readable(judgement.verdict), **where}
