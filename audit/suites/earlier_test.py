"""Reuse the test of an earlier record, so that `compare` has thresholds that both records share."""

from __future__ import annotations

import dataclasses

from audit.policies.policy import METHODS
from audit.policies.reused import Reused
from audit.record.derive import cuts_of, edges_of
from audit.record.record import AuditRecord
from audit.suites.build import Built
from audit.suites.suite import SuiteError

KINDS = ("fixed", "from_theory", "split", "reused")
"""Policies that judge a few cuts on a fixed sample, and so can be reused."""


def like(audit: Built, before: AuditRecord | None) -> Built:
    """The audit with the thresholds and the grid of its earlier record, if there is one."""
    return audit if before is None else dataclasses.replace(audit, policy=test_of(before, where=audit.spec.where))


def test_of(record: AuditRecord, *, where: str) -> Reused:
    """A policy that fixes a record's test again."""
    kind, method = record.policy["kind"], record.policy.get("method", "joint")
    if kind not in KINDS or method not in METHODS:
        raise SuiteError(
            f"{where}: the record of {record.name!r} was judged by the policy {kind!r}, whose test cannot be "
            f"reused; only the policies {', '.join(KINDS)} allow that."
        )
    return Reused(cuts=cuts_of(record), edges=edges_of(record), method=method)
