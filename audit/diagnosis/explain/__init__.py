"""Which line? Both datasets run side by side on the same random draws, operation by operation.

Where noise meets data, the difference of the two sides over the noise's deviation is what that release costs, and from
there on both sides are made equal: the privacy proof, replayed. What still differs at the end was never covered by
noise. It explains and never judges: verdicts come from trials.
"""

from audit.diagnosis.explain.dispatch import Stated, explain
from audit.diagnosis.explain.findings import Covered, Explanation, Finding, Kind, Round

__all__ = ["Covered", "Explanation", "Finding", "Kind", "Round", "Stated", "explain"]
