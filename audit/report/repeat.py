"""How to run one audit of a suite again."""

from __future__ import annotations

import shlex

from audit.record.record import AuditRecord

NOT_REPEATABLE = (
    "trials that were drawn twice differed: the code does not draw from its seed alone, so the same seed gives other "
    "counts. The bounds hold if the trials are independent of each other."
)


def command_of(record: AuditRecord, command: str = "") -> str:
    """Command that repeats this audit of a suite; ``command`` made all of them. Empty outside a suite."""
    suite = record.suite
    if suite is None:
        return command
    words = _words(command)
    if words[:2] != ["dpsgd-audit", "run"]:
        if command:
            return command
        words = ["dpsgd-audit", "run", "SUITE.toml", "--seed", str(suite.seed), "--trials", str(record.trials_planned)]
        words += ["--look", str(record.look)] if record.look else []
    if suite.audits == 1:
        return shlex.join(words)
    kept = [word for at, word in enumerate(words) if "--audit" not in (word, words[at - 1])]
    return shlex.join([*kept, "--audit", record.name])


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def suite_of(command: str) -> str:
    """The suite's file in a command that ran one, quoted as a shell reads it; empty if it names none."""
    tool, run, *rest = [*_words(command), "", ""]
    named = (tool, run) == ("dpsgd-audit", "run") and not rest[0].startswith("--")
    return shlex.quote(rest[0]) if named and rest[0] else ""
