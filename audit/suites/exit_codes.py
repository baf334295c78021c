"""Exit codes of commands. Imports nothing heavy, since `bound` and `verify` need no JAX."""

from __future__ import annotations

from audit.record.record import AuditRecord

EXIT_EXPECTED, EXIT_UNEXPECTED, EXIT_BAD_INPUT, EXIT_INCONCLUSIVE = 0, 1, 2, 3


def exit_code(records: tuple[AuditRecord, ...]) -> int:
    """Exit code for records: 0 all as expected; 1 an unexpected verdict; 2 one could not run; 3 one is inconclusive.

    The smallest that applies; an audit that was expected not to run, and ran, is unexpected.
    """
    surprises = {record.verdict for record in records if not record.as_expected}
    if surprises - {"inconclusive", "could_not_run"}:
        return EXIT_UNEXPECTED
    if "could_not_run" in surprises:
        return EXIT_BAD_INPUT
    return EXIT_INCONCLUSIVE if surprises else EXIT_EXPECTED
