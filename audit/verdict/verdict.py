"""The four verdicts, as records, suites and tests spell them. Imports nothing: the command line reads them first."""

from __future__ import annotations

from typing import Literal, get_args

Verdict = Literal["violation", "no_violation_found", "inconclusive", "could_not_run"]
"""What an audit concludes; 'no_violation_found' never means 'private', and 'could_not_run' says nothing of privacy."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""All verdicts."""
