"""dpsgd-audit explain: which line of the code that a suite audits looks wrong, from two runs and no trials."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from audit.commands.compare import EXIT_NOT_COMPARED
from audit.commands.json_output import print_json
from audit.commands.run import suite_of, with_seed
from audit.report.escaping import printable
from audit.suites.suite import AuditSpec, Suite, SuiteError
from dpsgd_audit.spelling import did_you_mean

if TYPE_CHECKING:
    from audit.diagnosis.explain.findings import Explanation
    from audit.suites.build import Built

FOUND = 1
NOT_JUDGED = EXIT_NOT_COMPARED
"""Nothing looks wrong as far as was seen, but some code was not judged: green would say too much."""
PROGRAM = (
    "not followed, since a command_step runs in a process of its own, in whatever language. Python code is followed "
    "where it runs in this one: callable_step, torch_training (PyTorch), mechanism or jax_training (JAX). Told clip=, "
    "noise_multiplier= and gradients=, a run diagnoses the outputs of a program after a violation."
)
"""Said once for all programs of a suite, none of which is started."""


def execute(arguments: argparse.Namespace) -> int:
    """Replay every audit's code, or that of the one that is named.

    1 if anything looks wrong where it should not, else 4 if some code was not judged, else 0.
    """
    suite = with_seed(suite_of(arguments), arguments.seed)
    from audit.diagnosis.explain import explain
    from audit.diagnosis.explain.findings import NEVER_SEEN
    from audit.suites.build import build_suite
    from audit.suites.run import audit_key

    told: dict[str, Explanation] = {}
    wanted = _wanted(suite, arguments.audit)
    programs = [spec for spec in wanted if spec.mechanism.get("kind") == "command_step"]
    if not arguments.json:
        wanted = [spec for spec in wanted if spec not in programs]
        if programs and not arguments.quiet:
            print(printable(f"{', '.join(spec.name for spec in programs)}: {PROGRAM}"))
    for audit in build_suite(suite, wanted):
        told[audit.spec.name] = explain(
            audit.mechanism,
            audit.neighbours,
            key=audit_key(suite.seed, audit.spec.name),
            claim=audit.claim,
        )
        if not arguments.json and not arguments.quiet:
            print(printable(_text(audit, told[audit.spec.name])))
    if told and not arguments.json and not arguments.quiet:
        print(NEVER_SEEN)
    if arguments.json:
        print_json({name: _plain(explanation) for name, explanation in told.items()})
    followed = [spec for spec in wanted if spec not in programs]
    return _code([(spec, told[spec.name]) for spec in followed]) if followed else NOT_JUDGED


def _code(told: list[tuple[AuditSpec, Explanation]]) -> int:
    """The exit code; a control is left out, since its planted fault should look wrong."""
    asked = [explanation for spec, explanation in told if spec.expect != "violation"]
    if any(explanation.suspicions for explanation in asked):
        return FOUND
    return NOT_JUDGED if any(explanation.not_judged for explanation in asked) else 0


def _wanted(suite: Suite, name: str | None) -> list[AuditSpec]:
    if name is None:
        return list(suite.audits)
    names = [spec.name for spec in suite.audits]
    if name not in names:
        raise SuiteError(
            f"--audit {name!r} is not an audit of this suite{did_you_mean(name, names)}. It has: {', '.join(names)}."
        )
    return [spec for spec in suite.audits if spec.name == name]


def _text(audit: Built, explanation: Explanation) -> str:
    lines = [f"{audit.spec.name}:", *(f"  {line}" for line in explanation.of_this_code.splitlines())]
    if explanation.suspicions:
        trials = f"{audit.spec.trials:,} trials"
        lines.append(
            f"  These are suspicions, not a verdict: `dpsgd-audit run` draws {trials} of this audit and judges it."
        )
    return "\n".join(lines)


def _plain(explanation: Explanation) -> dict[str, Any]:
    from audit.diagnosis.explain.findings import NOT_SEEN
    from audit.record.record import plain

    return {**plain(explanation), "not_seen": list(NOT_SEEN)}
