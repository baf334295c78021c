"""Audit suites for DP-SGD: run mechanisms, bound what they leak, judge it against a claim.

Names are imported when first used: ``import audit`` does not import JAX.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Anytime": "audit.thresholds",
    "AuditRecord": "audit.record",
    "ErrorCounts": "audit.bounds",
    "MechanismError": "audit.engine",
    "NonFiniteScoreError": "audit.engine",
    "Fixed": "audit.thresholds",
    "FromTheory": "audit.thresholds",
    "Simultaneous": "audit.thresholds",
    "Split": "audit.thresholds",
    "anytime_test": "audit.sequential",
    "band_from_scores": "audit.local_level_band",
    "delta_lower_bound": "audit.bounds",
    "Diagnosis": "audit.diagnosis",
    "diagnose": "audit.diagnosis",
    "diagnose_mechanism": "audit.diagnosis",
    "epsilon_lower_bound": "audit.bounds",
    "from_scores": "audit.scores",
    "joint_p_value": "audit.joint",
    "load_records": "audit.record",
    "mu_lower_bound": "audit.bounds",
    "plan": "audit.planning",
    "run_audit": "audit.procedure",
    "run_suite": "audit.suite",
    "save_records": "audit.record",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'audit' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
