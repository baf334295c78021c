"""dpsgd-audit plan: what each audit of a suite can be expected to show, before it is run."""

from __future__ import annotations

import argparse
import functools
import sys
from typing import TYPE_CHECKING

from audit.commands.json_output import print_json
from audit.commands.run import suite_of
from audit.report.durations import duration
from audit.suites.exit_codes import EXIT_BAD_INPUT, EXIT_EXPECTED
from audit.suites.suite import AuditSpec, SuiteError
from audit.trials.disk_cache import keep_compiled, laws_kept
from guarantees.numerics.rounding import at_most

if TYPE_CHECKING:
    from audit.suites.build import Built
    from audit.suites.plan import AuditPlan

KEEP_GOING = "With --keep-going the other audits are planned."


@laws_kept()
def execute(arguments: argparse.Namespace) -> int:
    """Plan every audit and print one table."""
    if arguments.one_run is not None:
        return _one_run(arguments)
    if arguments.claim is not None:
        raise SuiteError("--claim needs --one-run CANARIES; a suite names its own claims, so drop --claim.")
    if not 0 < arguments.power < 1:
        raise SuiteError(f"--power must lie between 0 and 1, got {arguments.power}.")
    suite = suite_of(arguments)
    from audit.report.escaping import printable
    from audit.report.story import listed
    from audit.suites.build import build_suite, catalogue, only_installed
    from audit.suites.parts import code_of, left_to_code
    from audit.suites.plan import plan_audit, timed_trials, trials_drawn, trials_of_plan
    from audit.suites.run import AuditError, audit_key, install, placed
    from audit.trials.both_sides import is_foreign
    from audit.trials.kept_programs import programs_kept_in
    from audit.trials.threefry import fold_in

    known = catalogue()
    code = {spec.name: code_of(spec, known) for spec in suite.audits}
    kept = [spec for spec in suite.audits if arguments.run_code or not code[spec.name]]
    if (rest := [spec for spec in suite.audits if spec not in kept]) and not arguments.quiet:
        named = listed(list(dict.fromkeys(each for spec in rest for each in code[spec.name])))
        line = (
            f"{listed([spec.name for spec in rest])}: not planned, since that would run {named}; --run-code allows it."
        )
        if unknown := dict.fromkeys(each for spec in rest for each in left_to_code(spec, known)):
            line += f" Nothing is imported, so whether it takes {' and '.join(map(repr, unknown))} is not known."
        print(printable(line), file=sys.stderr)
    failed = []

    def tell(says: str) -> None:
        print(printable(says), file=sys.stderr, flush=True)

    def unplanned(spec: AuditSpec, error: Exception) -> None:
        failed.append(spec)
        tell(str(error))

    built = build_suite(
        suite,
        kept,
        run_code=arguments.run_code,
        unbuilt=unplanned if arguments.keep_going else None,
        install=functools.partial(install, told=tell) if arguments.allow_install else only_installed,
    )

    def planned(audit: Built) -> AuditPlan:
        key = fold_in(audit_key(suite.seed, audit.spec.name), 1)
        # of code that JAX traces two trials are mostly compilation
        if code[audit.spec.name] and is_foreign(audit.mechanism) and not arguments.quiet:
            timed, drawn = timed_trials(audit, key=key), trials_drawn(audit)
            took = f"{timed.trials} trials took {timed.seconds:.2g} s"
            line = f"{audit.spec.name}: {took}, so drawing {drawn:,} takes about "
            fit = f" ({audit.spec.trials:,} are judged, the others choose scores and thresholds)"
            fit = fit if drawn > audit.spec.trials else ""
            line += f"{duration(timed.pace * drawn)} in one process{fit}; learning scores and judging come on top. "
            own = trials_of_plan(audit)
            line += f"Planning draws {own:,} of its own now: about {duration(timed.pace * own)}."
            tell(line)
        return plan_audit(audit, risk=suite.risk / len(suite.audits), key=key, power=arguments.power)

    plans = []
    # what it compiles, a run of the same suite need not
    with programs_kept_in(keep_compiled()):
        for audit in built:
            try:
                with placed(audit.spec, remedy="" if arguments.keep_going else KEEP_GOING):
                    plans.append(planned(audit))
            except AuditError as error:
                if not arguments.keep_going:
                    if plans:
                        _print_plans(plans, arguments)
                    raise
                unplanned(audit.spec, error)
    _print_plans(plans, arguments)
    return EXIT_BAD_INPUT if failed else EXIT_EXPECTED


def _print_plans(plans: list[AuditPlan], arguments: argparse.Namespace) -> None:
    from audit.record.record import plain

    if arguments.json:
        print_json([plain(plan) for plan in plans])
    elif plans and not arguments.quiet:
        _print_table(plans)
    # an error that follows stands below it
    sys.stdout.flush()


def _one_run(arguments: argparse.Namespace) -> int:
    if arguments.suite is not None or arguments.claim is None:
        raise SuiteError(
            "--one-run CANARIES plans one training: give it --claim, such as 'gaussian(mu=1)', and no suite."
        )
    from audit.commands.arguments import risk_of
    from audit.one_run.plan import plan_one_run
    from audit.record.record import plain
    from audit.suites.claim_names import claim_from_text

    plan = plan_one_run(
        claim=claim_from_text(arguments.claim),
        canaries=arguments.one_run,
        delta=arguments.delta,
        risk=risk_of(0.95 if arguments.confidence is None else arguments.confidence),
    )
    if arguments.json:
        print_json(plain(plan))
    elif not arguments.quiet:
        print(f"{plan}.")
    return 0


def _print_table(plans: list[AuditPlan]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from audit.report.escaping import visible
    from audit.report.table import log_width

    console = Console(width=log_width())
    power, risk = plans[0].plan.power, plans[0].plan.risk
    deltas = sorted({entry.plan.delta for entry in plans})
    at = f"delta {deltas[0]:g}" if len(deltas) == 1 else "each audit's delta"
    meant = [
        f"Trials are of both datasets together, at power {power:g} and risk {risk:.2g} an audit; epsilons are at {at}; "
        "times are of drawing in one process."
    ]
    if any(entry.plan.smallest_leak.epsilon is not None for entry in plans):
        meant.append(
            "The epsilon of the smallest Gaussian leak found may lie below the claimed one: such a leak exceeds the "
            "claim at another delta."
        )
    cells = [_cells(entry) for entry in plans]
    if any("never" in cell for row in cells for cell in row):
        meant.append("Never: as far as known, the code keeps its claim.")
    if any(entry.trials_between is not None for entry in plans):
        meant.append("A range: two standard errors of the pilot either way; unclear: within them the claim holds.")
    table = Table(caption=" ".join(meant), caption_justify="left")
    table.add_column("audit")
    table.add_column("known from")
    for column in (
        "trials\nplanned",
        "time",
        "to prove a violation\n(stopping early)",
        "time",
        "smallest Gaussian\nleak found",
        "largest epsilon\nprovable",
        "epsilon, if\nas claimed",
    ):
        table.add_column(column, justify="right")
    for entry, row in zip(plans, cells, strict=True):
        table.add_row(escape(visible(entry.name)), entry.source, *row)
    console.print(table)
    notes: dict[str, list[AuditPlan]] = {}
    for entry in plans:
        for note in filter(None, (entry.finds, entry.inconclusive, entry.note)):
            notes.setdefault(note, []).append(entry)
    for note, entries in notes.items():
        console.print(f"{visible(', '.join(entry.name for entry in entries))}: {note}", highlight=False, markup=False)


def _cells(entry: AuditPlan) -> list[str]:
    plan, needed, seconds = entry.plan, entry.plan.refutation, entry.plan.seconds_to_refute
    proof = "never"
    if needed is not None and needed.joint_trials is not None:
        proof = f"{_trials(needed.joint_trials)}\n({_trials(needed.anytime_trials)})"
    if entry.trials_between is not None:
        low, high = entry.trials_between
        proof += f"\n{low:,} to {_trials(high)}"
        proof, seconds = (proof, seconds) if high is not None else ("unclear", None)
    leak = plan.smallest_leak.epsilon
    return [
        f"{plan.trials:,}",
        duration(plan.seconds),
        proof,
        duration(seconds),
        "none" if leak is None else at_most(leak),
        at_most(plan.largest_provable_epsilon),
        f"{plan.expected.epsilon:.3g}",
    ]


def _trials(needed: int | None) -> str:
    return "never" if needed is None else f"{needed:,}"
