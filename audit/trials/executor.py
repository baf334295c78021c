"""Where trials are drawn: in this process, on all its devices, or (audit.trials.cluster) by a cluster's workers."""

from __future__ import annotations

from typing import Protocol

from audit.trials.both_sides import Auditable, BothSides, both_sides
from audit.trials.devices import device_name
from mechanisms.pairs.neighbours import Neighbours


class Executor(Protocol):
    """Draws trials somewhere. Trial i is a function of (key, i) wherever it is drawn, so no count depends on it."""

    @property
    def device(self) -> str:
        """What trials run on, as records say it."""
        ...

    def sides(self, mechanism: Auditable, neighbours: Neighbours) -> BothSides:
        """Where the trials of this mechanism on this pair come from."""
        ...


class Local:
    """This process and all its devices; foreign code in as many workers as it asks for."""

    @property
    def device(self) -> str:
        """The first of its devices, which are all alike."""
        return device_name()

    def sides(self, mechanism: Auditable, neighbours: Neighbours) -> BothSides:
        """Drawn here."""
        return both_sides(mechanism, neighbours)


LOCAL = Local()
