"""dpsgd-audit explain: which line of a suite's code looks wrong, from two runs and no trials."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from audit.commands.compare import EXIT_NOT_COMPARED
from audit.commands.json_output import print_json
from audit.commands.run import suite_of, with_seed
from audit.report.escaping import printable
from audit.suites.exit_codes import EXIT_BAD_INPUT
from audit.suites.suite import AuditSpec, Suite, SuiteError
from audit.trials.disk_cache import keep_compiled, laws_kept
from audit.trials.library_files import relative
from dpsgd_audit.spelling import did_you_mean

if TYPE_CHECKING:
    from audit.diagnosis.explain.findings import Explanation
    from audit.record.record import AuditRecord
    from audit.suites.build import Built

FOUND = 1
NOT_JUDGED = EXIT_NOT_COMPARED
"""Exit code if nothing looks wrong as far as was seen, but some code was not judged."""
PROGRAM = (
    "not followed, because a command_step runs in its own process, in any language. Python code that draws with "
    "PyTorch or JAX is followed in this process: callable_step, torch_training, mechanism or jax_training. {}."
)
"""Printed once for all programs of a suite, none of which is started."""


@laws_kept()
def execute(arguments: argparse.Namespace) -> int:
    """Replay every audit's code, or that of the named one, unless ``--records`` have lines of it already.

    An audit that is refused, such as for a claim that counts other steps, is reported, and the others go on. 1 if
    anything looks wrong where it should not, else 2 if an audit was refused, else 4 if some code was not judged.
    """
    if arguments.jobs < 1:
        raise SuiteError(f"--jobs must be >= 1, got {arguments.jobs}.")
    suite = with_seed(suite_of(arguments), arguments.seed)
    from audit.diagnosis.explain.dispatch import diagnosed
    from audit.diagnosis.explain.findings import NEVER_SEEN
    from audit.suites.build import build_suite

    refused: list[AuditSpec] = []

    def refuse(spec: AuditSpec, why: Exception | str) -> None:
        refused.append(spec)
        print(printable(str(why)), file=sys.stderr, flush=True)

    explained: dict[str, Explanation] = {}
    wanted = _wanted(suite, arguments.audit)
    programs = [spec for spec in wanted if spec.mechanism.get("kind") == "command_step"]
    if not arguments.json:
        wanted = [spec for spec in wanted if spec not in programs]
        if programs and not arguments.quiet:
            note = PROGRAM.format(diagnosed(*(spec.mechanism for spec in programs)))
            print(printable(f"{', '.join(spec.name for spec in programs)}: {note}"))
    records = _records(arguments.records)
    known = _known(records)
    unexplained = [spec for spec in wanted if spec.name not in known]
    built = build_suite(suite, unexplained, unbuilt=refuse)
    with _replays(built, suite.seed, arguments.jobs) as replays:
        for spec in [spec for spec in wanted if spec not in refused]:
            if spec.name in known:
                explained[spec.name] = known[spec.name]
            elif isinstance(found := replays[spec.name](), str):
                refuse(spec, found)
                continue
            else:
                explained[spec.name] = found
                _annotate(spec, found)
            if not arguments.json and not arguments.quiet:
                print(printable(_text(spec, explained[spec.name], drawn=spec.name in known)), flush=True)
    if any(one.followed or one.suspicions for one in explained.values()) and not arguments.json and not arguments.quiet:
        print(NEVER_SEEN)
    wanted = [spec for spec in wanted if spec not in refused]
    if arguments.sarif:
        fresh = [(spec, explained[spec.name]) for spec in wanted if spec.name not in known]
        _write_sarif(fresh, records, suite, arguments.sarif)
    if arguments.json:
        print_json({name: _plain(explanation) for name, explanation in explained.items()})
    followed = [spec for spec in wanted if spec not in programs]
    code = _code([(spec, explained[spec.name]) for spec in followed]) if followed else NOT_JUDGED
    return EXIT_BAD_INPUT if refused and code != FOUND else code


@contextlib.contextmanager
def _replays(built: list[Built], seed: int, jobs: int) -> Iterator[dict[str, Callable[[], Explanation | str]]]:
    """Functions that wait for each audit's replay, by name; if several run at once, spawned processes make them."""
    if jobs == 1 or len(built) < 2:
        yield {audit.spec.name: functools.partial(_replay, audit, seed) for audit in built}
        return
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(min(jobs, len(built)), context)
    try:
        yield {audit.spec.name: pool.submit(_build_and_replay, audit.spec, seed).result for audit in built}
    finally:
        pool.shutdown(cancel_futures=True)


def _build_and_replay(spec: AuditSpec, seed: int) -> Explanation | str:
    from audit.suites.build import build

    return _replay(build(spec), seed)


def _replay(audit: Built, seed: int) -> Explanation | str:
    """What the replay shows, or why the audit is refused."""
    from audit.diagnosis.explain import explain
    from audit.suites.run import AuditError, audit_key, placed

    keep_compiled()
    key = audit_key(seed, audit.spec.name)
    try:
        with placed(audit.spec, remedy=""):
            return explain(audit.mechanism, audit.neighbours, key=key, claim=audit.claim)
    except AuditError as error:
        return str(error)


def _code(explained: list[tuple[AuditSpec, Explanation]]) -> int:
    """The exit code; controls are left out, as their planted faults should look wrong."""
    asked = [explanation for spec, explanation in explained if spec.expect != "violation"]
    if any(explanation.suspicions for explanation in asked):
        return FOUND
    return NOT_JUDGED if any(explanation.not_judged for explanation in asked) else 0


def _annotate(spec: AuditSpec, explanation: Explanation) -> None:
    """Print GitHub annotations for wrong lines, if GitHub runs us; a run has done so for those that it named."""
    from audit.report.diagnoses import stated_at
    from audit.report.formats import annotation

    if os.environ.get("GITHUB_ACTIONS") == "true" and spec.expect != "violation":
        for finding in explanation.suspicions:
            places = [(relative(path), line) for path, line in finding.lines]
            print(annotation("error", spec.name, finding.says, places or stated_at(spec.where)), file=sys.stderr)


def _write_sarif(
    explained: list[tuple[AuditSpec, Explanation]], records: tuple[AuditRecord, ...], suite: Suite, path: str
) -> None:
    """Write one result for each new finding that the exit code counts, beside those of the records."""
    from audit.record.files import write_whole
    from audit.report.sarif import replay_results, sarif

    results = []
    for spec, explanation in explained:
        if spec.expect != "violation":
            found = [
                (str(one.kind), one.says, [(relative(path), line) for path, line in one.lines])
                for one in explanation.suspicions
            ]
            results += replay_results(spec.name, found, spec.where)
    write_whole(path, sarif(records, places={spec.name: spec.where for spec in suite.audits}, besides=results))


def _wanted(suite: Suite, chosen: list[str] | None) -> list[AuditSpec]:
    names = [spec.name for spec in suite.audits]
    if unknown := next((name for name in chosen or () if name not in names), None):
        problem = f"is not an audit of this suite{did_you_mean(unknown, names)}. It has: {', '.join(names)}."
        raise SuiteError(f"--audit {unknown!r} {problem}")
    return [spec for spec in suite.audits if chosen is None or spec.name in chosen]


def _records(path: str | None) -> tuple[AuditRecord, ...]:
    from audit.record.stored import load_records

    return () if path is None else load_records(path)


def _known(records: tuple[AuditRecord, ...]) -> dict[str, Explanation]:
    """What a run's own replay found wrong, by the audit's name; a record does not tell what it found right."""
    from audit.diagnosis.explain.in_records import recalled

    explanations = {record.name: recalled(record.diagnoses) for record in records}
    return {name: explanation for name, explanation in explanations.items() if explanation.suspicions}


def _text(spec: AuditSpec, explanation: Explanation, *, drawn: bool) -> str:
    """The explanation as text; ``drawn``: a run has drawn the trials, and its replay is told again."""
    text = explanation.of_this_code.splitlines()
    if len(text) == 1:
        return f"{spec.name}: {text[0]}"
    lines = [f"{spec.name}{' (replayed by the run)' if drawn else ''}:", *(f"  {line}" for line in text)]
    if explanation.suspicions and not drawn:
        lines.append("  These are suspicions, not a verdict: only the trials that `dpsgd-audit run` draws judge.")
    return "\n".join(lines)


def _plain(explanation: Explanation) -> dict[str, Any]:
    from audit.diagnosis.explain.findings import NOT_SEEN
    from audit.record.record import plain

    return {**plain(explanation), "not_seen": list(NOT_SEEN)}
