"""Audit suites for DP-SGD: run mechanisms, bound what they leak, judge it against a claim.

Names are imported when first used: ``import audit`` does not import JAX.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Anytime": "audit.policies.anytime",
    "AuditRecord": "audit.record.record",
    "ErrorCounts": "audit.bounds.clopper_pearson",
    "MechanismError": "audit.trials.source",
    "NonFiniteScoreError": "audit.trials.source",
    "Fixed": "audit.policies.fixed",
    "FromTheory": "audit.policies.chosen",
    "Simultaneous": "audit.policies.simultaneous",
    "Split": "audit.policies.chosen",
    "Verdict": "audit.verdict.verdict",
    "anytime_test": "audit.bounds.betting",
    "band_from_scores": "audit.bounds.local_levels",
    "delta_lower_bound": "audit.bounds.clopper_pearson",
    "Diagnosis": "audit.diagnosis",
    "diagnose": "audit.diagnosis",
    "diagnose_mechanism": "audit.diagnosis",
    "epsilon_lower_bound": "audit.bounds.clopper_pearson",
    "from_scores": "audit.scores",
    "joint_delta_bound": "audit.bounds.inversion",
    "joint_epsilon_bound": "audit.bounds.inversion",
    "joint_mu_bound": "audit.bounds.inversion",
    "joint_p_value": "audit.bounds.joint",
    "label_scan": "audit.bounds.label_scan",
    "load_records": "audit.record.record",
    "mu_lower_bound": "audit.bounds.clopper_pearson",
    "plan": "audit.verdict.plan",
    "run_audit": "audit.procedure",
    "run_suite": "audit.suites.run",
    "save_records": "audit.record.record",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'audit' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
