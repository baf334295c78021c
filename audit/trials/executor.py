"""Where trials are drawn: in this process, on all its devices, or by the workers of a cluster
(audit.trials.cluster)."""

from __future__ import annotations

from typing import Protocol

from audit.trials.both_sides import Auditable, BothSides, both_sides
from audit.trials.devices import device_name
from mechanisms.pairs.neighbours import Neighbours


class Executor(Protocol):
    """Draws trials somewhere. Trial i is a function of (key, i) anywhere, so that no count depends on the place."""

    @property
    def device(self) -> str:
        """Name of the device that trials run on, as in records."""
        ...

    def sides(self, mechanism: Auditable, neighbours: Neighbours) -> BothSides:
        """The source of trials of this mechanism on this pair."""
        ...


class Local:
    """Draws in this process and on all its devices; foreign code in as many workers as it asks for."""

    @property
    def device(self) -> str:
        """Name of the first device; all are alike."""
        return device_name()

    def sides(self, mechanism: Auditable, neighbours: Neighbours) -> BothSides:
        """The source of trials, drawn here."""
        return both_sides(mechanism, neighbours)


LOCAL = Local()
