"""What a command's exit code says. Nothing heavy is imported here: `bound` and `verify` need no JAX."""

from __future__ import annotations

from audit.record.record import AuditRecord

EXIT_EXPECTED, EXIT_UNEXPECTED, EXIT_BAD_INPUT, EXIT_INCONCLUSIVE = 0, 1, 2, 3


def exit_code(records: tuple[AuditRecord, ...]) -> int:
    """0: every verdict as expected; 1: an unexpected one; 3: one is inconclusive (1 comes before 3)."""
    surprises = [record for record in records if not record.as_expected]
    if any(record.verdict != "inconclusive" for record in surprises):
        return EXIT_UNEXPECTED
    return EXIT_INCONCLUSIVE if surprises else EXIT_EXPECTED
