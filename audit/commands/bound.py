"""dpsgd-audit bound: valid bounds from scores drawn anywhere."""

from __future__ import annotations

import argparse
import dataclasses
import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Mu
from audit.bounds.joint import GAMMA_SHARE
from audit.commands.arguments import risk_of
from audit.commands.json_output import print_json
from audit.commands.score_file import load_scores, swapped
from audit.record.files import make_folder, require_apart, write_whole
from audit.record.record import plain
from audit.report.table import readable, readable_p_value
from audit.suites.exit_codes import EXIT_EXPECTED, EXIT_INCONCLUSIVE, EXIT_UNEXPECTED
from audit.trials.disk_cache import laws_kept
from audit.verdict.proven_numbers import ProvenNumber, stated, without_errors
from guarantees.numerics.rounding import at_least, at_most

if TYPE_CHECKING:
    from audit.bounds.attack_summary import AttackSummary
    from audit.one_run.result import OneRun
    from audit.verdict.score_bounds import ScoreBounds

CLOSE = 0.01
"""How far a p-value may lie above the smallest that the joint test gives and still be called that."""
BY_THE_BAND = "by the band over all thresholds"
EXITS = {"violation": EXIT_UNEXPECTED, "no_violation_found": EXIT_EXPECTED, "inconclusive": EXIT_INCONCLUSIVE}


@laws_kept()
def execute(arguments: argparse.Namespace) -> int:
    """Read two files of scores or outputs, print bounds and what the user must vouch for."""
    from audit.commands import one_run

    _check_options(arguments)
    sides = _read(arguments)
    found = one_run.execute(arguments, *sides) if arguments.one_run else _from_scores(arguments, sides)
    if arguments.claim is not None and (arguments.out or arguments.markdown):
        _write(found, arguments)
    return 0 if found.verdict is None else EXITS[found.verdict]


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse, before reading anything, options that do not go together and outputs that cannot be written."""
    if not 0 <= arguments.delta < 1:
        raise ValueError(f"--delta must lie in [0, 1), got {arguments.delta}.")
    if arguments.one_run and arguments.markdown and arguments.claim is None:
        raise ValueError("--markdown with --one-run writes the card of a claim that was judged; add --claim.")
    if arguments.guesses and not arguments.one_run:
        raise ValueError("--guesses only works with --one-run; add --one-run, or drop --guesses.")
    if arguments.out is None:
        if arguments.name is not None:
            raise ValueError("--name names a record; add --out DIR, or drop --name.")
        return
    if arguments.claim is None:
        raise ValueError(
            "--out writes a record, which holds the verdict on a claim; add --claim, such as "
            "--claim 'epsilon_delta(epsilon=8, delta=1e-5)', or drop --out."
        )
    out = make_folder(arguments.out)
    read = {"the scores of --without": arguments.without, "the scores of --with": arguments.with_record}
    written = {"the record": out / "records.json", "the page": out / "index.html"}
    require_apart(written, read)
    if arguments.markdown:
        require_apart({"--markdown": arguments.markdown}, {**written, **read})


def _read(arguments: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Both files, with warnings about what looks like a mistake."""
    from audit.bounds.output_scores import are_outputs, rows_of_outputs
    from audit.scores import copied_trials, one_column

    zero, one = load_scores(arguments.without), load_scores(arguments.with_record)
    outputs = are_outputs(zero) or are_outputs(one)
    if outputs and arguments.one_run:
        raise ValueError(
            "--one-run reads one score per canary, but these files have several numbers per row; save scores."
        )
    if outputs:
        zero, one = rows_of_outputs("--without", zero), rows_of_outputs("--with", one)
    else:
        least = 0 if arguments.one_run else 4
        zero, one = one_column("--without", zero, least=least), one_column("--with", one, least=least)
    if np.array_equal(np.sort(np.ravel(zero)), np.sort(np.ravel(one))):
        print("warning: --without and --with hold the same scores: is it the same file twice?", file=sys.stderr)
    if not outputs and (warning := swapped(zero, one)):
        print(f"warning: {warning}", file=sys.stderr)
    if not arguments.one_run and (copied := copied_trials(zero, one)):
        print(
            f"warning: {copied}: if the noise is continuous, trials were copied or a seed was used again. Then the "
            "bounds and the verdict below do not hold; keep one of each.",
            file=sys.stderr,
        )
    return zero, one


def _from_scores(arguments: argparse.Namespace, sides: tuple[np.ndarray, np.ndarray]) -> ScoreBounds:
    """Compute the bounds, and print or write what was asked for."""
    from audit.scores import from_scores
    from audit.suites.claim_names import claim_from_text

    claim = None if arguments.claim is None else claim_from_text(arguments.claim)
    found = from_scores(
        *sides,
        risk=risk_of(arguments.confidence),
        thresholds=tuple(arguments.threshold or ()),
        claim=claim,
        delta=arguments.delta,
        target=arguments.target,
        seed=arguments.seed,
    )
    if arguments.markdown and claim is None:
        from audit.report.score_card import score_card

        files = (arguments.without, arguments.with_record)
        write_whole(arguments.markdown, score_card(found, delta=arguments.delta, files=files))
    if arguments.json:
        print_json(plain(_numbers(found, arguments.delta)))
    elif not arguments.quiet:
        _print(found, arguments)
    return found


def _write(found: ScoreBounds | OneRun, arguments: argparse.Namespace) -> None:
    """Write the record with its input files, the page and the model card, as far as asked for."""
    from audit.record.of_one_run import as_record
    from audit.record.stored import save_records
    from audit.report.page import write_report
    from audit.report.statement import model_card

    record = as_record(found)
    files = {"without": arguments.without, "with": arguments.with_record}
    name = record.name if arguments.name is None else arguments.name
    title = f"Privacy audit of {name}" if arguments.name is None else name
    record = dataclasses.replace(record, name=name, mechanism=dataclasses.replace(record.mechanism, parameters=files))
    if arguments.markdown:
        write_whole(arguments.markdown, model_card((record,), title=title))
    if not arguments.out:
        return
    out = Path(arguments.out)
    save_records((record,), out / "records.json", title=title)
    page = write_report((record,), out, title=title, command=_command(arguments))
    if not (arguments.quiet or arguments.json):
        print(f"record: {out / 'records.json'}\nreport: {page}")


def _command(arguments: argparse.Namespace) -> str:
    """Command that counts the same scores again: every option that changes the numbers."""
    words = ["dpsgd-audit", "bound", "--without", arguments.without, "--with", arguments.with_record]
    words += ["--one-run"] if arguments.one_run else []
    for option in ("claim", "delta", "confidence", "target", "seed"):
        if (value := getattr(arguments, option)) is not None:
            words += [f"--{option}", str(value)]
    words += [word for threshold in arguments.threshold or () for word in ("--threshold", str(threshold))]
    words += [word for pair in arguments.guesses or () for word in ("--guesses", *map(str, pair))]
    return shlex.join(words)


def _numbers(found: ScoreBounds, delta: float) -> dict[str, Any]:
    """The result without the scores themselves and the whole band."""
    told = ("risk", "shares", "numbers", "tests", "seed", "learned_from", "conditions")
    kept = (*told, "verdict", "judgement", "summary")
    return {
        "epsilon": found.epsilon(delta),
        "epsilon_at_delta": delta,
        "delta": found.delta(0.0),
        "delta_at_epsilon": 0.0,
        "mu": found.mu,
        **{name: plain(getattr(found, name)) for name in kept},
    }


def _print(found: ScoreBounds, arguments: argparse.Namespace) -> None:
    if (verdict := found.judgement) is not None:
        print(f"verdict: {readable(verdict.verdict)} ({_p_value(verdict.p_value, found.risk)}); {verdict.reason}")
        if verdict.violated_at is not None:
            print(verdict.violated_at.says)
    heads = {"epsilon": f"epsilon at delta {arguments.delta:g}", "delta": "delta at epsilon 0", "mu": "mu"}
    proven_by_all = {"epsilon": found.epsilon(arguments.delta), "delta": found.delta(0.0), "mu": found.mu}
    sources = {number.name: _source(found, number, proven_by_all[number.name]) for number in found.numbers}
    for number in found.numbers:
        proven, source = at_least(proven_by_all[number.name]), sources[number.name]
        detail = f"limits on each error rate alone: {at_least(number.rectangle)}"
        if source:
            detail = f"{source}; its own test: {at_least(number.at_least)}"
        print(f"{heads[number.name] + ':':26}at least {proven}   ({detail})")
    if found.summary is not None:
        _print_summary(found.summary, delta=found.delta(0.0))
    judged = found.tests[0].counts
    given = ", ".join(f"{t:.4g}" for t in arguments.threshold or ())
    where = (
        f"at the threshold {given}"
        if given
        else f"at thresholds chosen on other scores (a tenth, drawn by seed {found.seed})"
    )
    if found.learned_from is not None:
        print(
            "A third of the outputs ({:,} without the record, {:,} with it) learned a score.".format(
                *found.learned_from
            )
        )
    sure = at_least(1 - found.risk, ".4g")
    print(f"All hold together at confidence {sure}, from {judged.trials_without:,} judged scores without and")
    elsewhere = f"; {BY_THE_BAND}, where it says so" if BY_THE_BAND in sources.values() else ""
    print(f"{judged.trials_with:,} with the record, {where}{elsewhere}.")
    for number in found.numbers:
        if number.name == "epsilon":
            question, share = EpsilonAt(delta=arguments.delta), found.shares["epsilon"]
            most = max(number.at_least, without_errors(judged, question, number, share=share))
            print(f"This many scores can prove at most epsilon {at_most(most)}; a lower bound is not the leak.")
    if verdict is not None:
        print("The verdict on the claim has a share of the risk: without --claim these bounds may be a little higher.")
    print("Valid if you can vouch that:")
    *others, last = found.conditions
    print("\n".join([*(f"  - {condition};" for condition in others), f"  - {last}."]))


def _source(found: ScoreBounds, number: ProvenNumber, proven: float) -> str:
    """What proves more than the number's own test, if anything does."""
    if proven <= number.at_least:
        return ""
    questions = {"epsilon": EpsilonAt(delta=number.given or 0.0), "delta": DeltaAt(epsilon=0.0), "mu": Mu()}
    return BY_THE_BAND if proven > stated(found.numbers, questions[number.name]) else "implied by another number here"


def _p_value(p: float, risk: float) -> str:
    """The p-value, with a note if it cannot be smaller: the joint test alone never goes below its gamma."""
    floor = ", the smallest that its test gives at this confidence"
    return f"p-value {readable_p_value(p)}{floor if math.isclose(p, GAMMA_SHARE * risk, rel_tol=CLOSE) else ''}"


def _print_summary(summary: AttackSummary, *, delta: float) -> None:
    """Print the attack's figures, estimated and proven, and which number says more; ``delta`` is at epsilon 0."""
    figures = [
        ("AUROC", summary.auroc_at_least, summary.auroc),
        ("accuracy", summary.accuracy_at_least, summary.accuracy),
        *((f"TPR at FPR {x.false_positive_rate:g}", x.at_least, x.estimate) for x in summary.true_positive_rates),
    ]
    for name, proven, estimate in figures:
        print(f"{name + ':':26}at least {at_least(proven, '.4f')}   (these scores: {estimate:.4f})")
    better = ", or the accuracy rather than the AUROC" if summary.accuracy_at_least > summary.auroc_at_least else ""
    print(f"These bounds hold at every threshold at once, so they are looser. Report epsilon or delta{better}: by")
    print(f"delta, a guess is right at least {at_least(50 * (1 + delta))}% of the time.")
