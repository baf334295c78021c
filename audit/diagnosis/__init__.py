"""After a violation: what looks wrong. Each diagnosis is a test of its own, at its own stated share of the risk.

All of them look at noise alone: the coordinates of the outputs outside the span of the gradients. They explain and
never decide a verdict.
"""

from audit.diagnosis.all_questions import diagnose, diagnose_mechanism
from audit.diagnosis.noise import read_noise
from audit.record.diagnosis_answer import Diagnosis

__all__ = ["Diagnosis", "diagnose", "diagnose_mechanism", "read_noise"]
