"""Why a run of both sides ends before its program does."""

from __future__ import annotations

from audit.diagnosis.explain.places import Place


class CannotFollowError(Exception):
    """The replay ends here; the message says why."""

    def __init__(self, why: str, at: Place):
        super().__init__(why)
        self.why, self.at = why, at


class FirstRoundEnded(Exception):
    """Data meet a release: the next round has begun."""
