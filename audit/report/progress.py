"""A progress bar on standard error, one line per audit."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from audit.record.record import AuditRecord
from audit.report.escaping import visible
from audit.report.table import readable
from audit.suites.suite import AuditSpec, Suite
from audit.trials.source import Tally


class Progress:
    """Progress of each audit as a bar, or as plain lines if standard error is not a terminal."""

    def __init__(self, suite: Suite, *, quiet: bool = False):
        self._console = Console(stderr=True, quiet=quiet)
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("trials"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._suite = suite
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        # rich 13 ends disabled bars with a blank line
        if self._console.is_terminal:
            self._bars.stop()

    def started(self, spec: AuditSpec) -> None:
        """Show that an audit begins."""
        self._task = self._bars.add_task(self._told(spec), total=spec.trials)

    def fitting(self, spec: AuditSpec, drawn: int, planned: int) -> None:
        """Show that more trials are drawn from which scores and thresholds are learned."""
        if self._task is not None:
            self._bars.update(self._task, description=f"{self._told(spec)}, learning", completed=drawn, total=planned)

    def advanced(self, spec: AuditSpec, tally: Tally) -> None:
        """Show that more of an audit's trials are counted."""
        if self._task is not None:
            done = 2 * tally.trials_per_side
            self._bars.update(self._task, description=self._told(spec), completed=done, total=spec.trials)

    def _told(self, spec: AuditSpec) -> str:
        """An audit's name and, if there are others, its place in the suite."""
        names = [audit.name for audit in self._suite.audits]
        place = f"{names.index(spec.name) + 1} of {len(names)}: " if len(names) > 1 else ""
        return f"{place}{visible(spec.name)}"

    def finished(self, record: AuditRecord) -> None:
        """Show that an audit has its verdict."""
        if not self._console.is_terminal:
            line = f"{visible(record.name)}: {readable(record.verdict)} ({record.seconds:.1f} s)"
            self._console.print(line, highlight=False, markup=False)
