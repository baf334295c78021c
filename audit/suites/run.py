"""Run a suite: its audits one after the other, with one risk for all of them, resumable."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from audit.procedure import run_audit
from audit.record.environment import describe_environment, describe_key
from audit.record.files import FileError
from audit.record.record import AuditRecord, SuitePart, plain
from audit.resume.checkpoint import Checkpoint, Saver, checkpoint
from audit.resume.fingerprint import code_digest, decided_by
from audit.suites.build import Built, build_suite, only_installed
from audit.suites.each_audit import among, folded, risk_of_each
from audit.suites.earlier_test import like
from audit.suites.suite import AuditSpec, Suite, SuiteError, UnbuiltError
from audit.suites.unrun import unrun
from audit.trials.both_sides import both_sides, is_foreign
from audit.trials.execution import Execution
from audit.trials.executor import LOCAL, Executor
from audit.trials.keys import key_from_seed
from audit.trials.source import StaleCountsError, Tally
from audit.trials.threefry import fold_in
from audit.trials.user_code_errors import contained, sentence
from dpsgd_audit.spelling import did_you_mean
from guarantees.checks import checked
from mechanisms.adapters.environments import Environment

REMEDY = "Fix it and run the same command again: finished audits are kept (with --resume also those of foreign code)."

CHANGED = {
    "parts": "what the suite builds (mechanism, pair, distinguisher, policy)",
    "claim": "the claim",
    "files": "a program's files",
    "code": "the code",
    "environment": "the environment (versions, device)",
    "settings": "JAX's settings",
    "spec": "the audit's entry (or an option that replaces a part of it)",
}
"""What determines an audit's numbers, in words for a sentence."""


class AuditError(RuntimeError):
    """An audit of a suite could not be finished: the last line says where, which and why."""

    def __init__(self, message: str, *, why: str):
        super().__init__(message)
        self.why = why
        """Why, in a sentence or two."""


@checked
def run_suite(
    suite: Suite,
    *,
    only: Sequence[str] = (),
    resume_in: Path | None = None,
    keep_foreign: bool = False,
    earlier: tuple[AuditRecord, ...] = (),
    executor: Executor = LOCAL,
    keep_going: bool = False,
    allow_install: bool = False,
    told: Callable[[str], None] = lambda _: None,
    started: Callable[[AuditSpec], None] = lambda _: None,
    fitting: Callable[[AuditSpec, int, int], None] = lambda *_: None,
    progress: Callable[[AuditSpec, Tally], None] = lambda *_: None,
    finished: Callable[[AuditRecord], None] = lambda _: None,
) -> tuple[AuditRecord, ...]:
    r"""Run every audit of a suite at ``risk / number of audits``, so that all bounds and verdicts hold together at
    ``risk``.

    Everything is built, and what JAX runs is traced, before anything runs: a wrong word in the last audit, or an error
    in its code, costs no time. Programs are compiled meanwhile. An audit's key comes from the suite's seed and the
    audit's name: adding an audit does not change the data of the others. Of several looks,
    look k has 2^-k of the risk and trials of its own. [docs/validity.md, section 7]

    Not guaranteed: that foreign code (a callable, a program) is the same as when its counts were kept. What it imports
    or reads in its own process is not part of the digest under which ``resume_in`` keeps them.

    Args:
      suite: the audits, as ``audit.suites.read.read_suite`` reads them from a TOML file.
      only: names of the audits to run; each has the risk and the trials that it has in a run of the whole suite.
      resume_in: folder for counts and finished audits, kept under a digest of all that decides them.
      keep_foreign: also reuse counts and records of foreign code from there.
      earlier: records of an earlier run; an audit of the same name is judged by the same thresholds.
      executor: who draws the trials. A run may be continued by another executor on devices of the same kind.
      keep_going: an audit that cannot be built, or that fails, gets the verdict ``could_not_run`` and the others run.
      allow_install: make the environments that audits name and that are not here; without it such an audit is refused.
      told: called with a sentence for each result that is taken from ``resume_in``, and before each installation.
      started: called with each audit before it runs.
      fitting: called with an audit, how many of its fit trials are drawn and how many are planned.
      progress: called with an audit and its counts after every chunk.
      finished: called with each record.

    Returns:
      One record per audit that was run, in the order of the suite.

    Raises:
      SuiteError: a word of the suite is wrong, or a part cannot be built and ``keep_going`` is not set; the message
        has file and line.
      AuditError: an audit failed while it ran and ``keep_going`` is not set; the message names it.

    Examples:
      >>> import audit, pathlib, tempfile
      >>> from audit.suites.read import read_suite
      >>> lines = ["risk = 0.05", "trials = 2000", "[[audit]]", "name = 'one Gaussian release'"]
      >>> lines += ["mechanism = { kind = 'gaussian_mechanism', noise_multiplier = 1.0 }", "neighbours = 'scalar_pair'"]
      >>> lines += ["distinguisher = 'likelihood_ratio'", "claim = { kind = 'gaussian', mu = 1.0 }"]
      >>> file = pathlib.Path(tempfile.mkdtemp()) / "suite.toml"
      >>> _ = file.write_text("\n".join(lines))
      >>> [record.verdict for record in audit.run_suite(read_suite(file))]
      ['no_violation_found']
    """
    wanted = chosen(suite, only)
    earlier_by_name = {record.name: record for record in earlier if record.ran}
    missing: dict[str, str] = {}

    def unbuilt(spec: AuditSpec, error: UnbuiltError) -> None:
        # said before the others run, so that a wrong value can be corrected at once
        told(str(error))
        # the message without the suite's line before it
        _, _, missing[spec.name] = str(error).partition(": ")

    ready = build_suite(
        suite,
        wanted,
        unbuilt=unbuilt if keep_going else None,
        install=functools.partial(install, told=told) if allow_install else only_installed,
    )
    built = {audit.spec.name: like(audit, earlier_by_name.get(audit.spec.name)) for audit in ready}
    if not keep_going:
        for audit in ready[1:]:
            _require_traced(audit)
    code = code_digest()
    suite_part = SuitePart(risk=suite.risk, audits=len(suite.audits), seed=suite.seed)
    risk = risk_of_each(suite_part, suite.look)
    end = None if suite.time_budget is None else time.monotonic() + suite.time_budget
    records = []

    def requested(spec: AuditSpec) -> dict[str, Any]:
        key = describe_key(audit_key(suite.seed, spec.name, suite.look))
        return {"risk": risk, "key": key, "environment": describe_environment(executor.device)}

    warned: set[str] = set()

    def foreseen(spec: AuditSpec, says: str) -> None:
        """Warn once for all audits with the same claim, trials, delta, policy, target and expected verdict."""
        if spec.name not in warned:
            same = [name for name in built if _judged_by(built[name].spec) == _judged_by(spec)]
            names = [name for name in same if name == spec.name or is_foreign(built[name].mechanism)]
            warned.update(names)
            told(f"{', '.join(names)}{says.removeprefix(spec.name)}")

    for index, spec in enumerate(wanted):
        started(spec)
        if spec.name in missing:
            record = unrun(spec, None, why=missing[spec.name], **requested(spec))
        else:
            audit = built[spec.name]
            deadline = _deadline(spec, end, len(wanted) - index)
            began = time.monotonic()
            try:
                with placed(spec):
                    place = None
                    if resume_in is not None:
                        place = checkpoint(resume_in, _decided_by(audit, suite, risk, code, executor))
                    kept = KeptResults(place=place, told=told, use=keep_foreign or not is_foreign(audit.mechanism))
                    record = _run(audit, suite, risk, deadline, kept, fitting, progress, foreseen, executor)
            except AuditError as error:
                if not keep_going or isinstance(error.__cause__, FileError):
                    raise
                told(str(error))
                spent = time.monotonic() - began
                record = unrun(spec, audit, why=error.why, seconds=spent, **requested(spec))
        stated = {**record.environment, "code": code}
        records.append(dataclasses.replace(record, look=suite.look, suite=suite_part, environment=stated))
        finished(records[-1])
    return adjust(tuple(records))


def _judged_by(spec: AuditSpec) -> tuple[Any, ...]:
    """Everything that determines whether trials are too few."""
    return spec.claim, spec.trials, spec.delta, spec.policy, spec.target, spec.expect


def chosen(suite: Suite, names: Sequence[str]) -> tuple[AuditSpec, ...]:
    """The audits with these names, in the order of the suite; all audits if no name is given."""
    known = [spec.name for spec in suite.audits]
    for name in names:
        if name not in known:
            raise SuiteError(f"the suite has no audit {name!r}{did_you_mean(name, known)}. Known: {', '.join(known)}.")
    return tuple(spec for spec in suite.audits if not names or spec.name in names)


def install(needed: Environment, *, told: Callable[[str], None]) -> None:
    """Install an environment that is missing, and announce it before."""
    if not needed.installed:
        told(f"installing {needed} into {needed.folder}, once.")
        needed.install()
    needed.required()


def _require_traced(audit: Built) -> None:
    """Trace a mechanism, so that an error is raised before other audits run."""
    if not is_foreign(audit.mechanism):
        with placed(audit.spec):
            both_sides(audit.mechanism, audit.neighbours).layout()


@contextlib.contextmanager
def placed(spec: AuditSpec, *, remedy: str = REMEDY) -> Iterator[None]:
    """Turn an error of an audit's code, or of the disk, into an AuditError with the suite's line and the audit's name.

    The traceback of user code stands above that line, which is the last one.
    """
    try:
        with contained():
            yield
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        first = lines[0] if isinstance(error, RuntimeError | ValueError | OSError) else sentence(error)
        # shorter messages are repeated in full below
        detail = "".join(f"{line}\n" for line in lines[1:]) if len(lines) > 2 else ""
        sentences = first if isinstance(error, FileError) else f"{first.rstrip('.')}. {remedy}".rstrip()
        message = f"{detail}{spec.where}: audit {spec.name!r} failed: {sentences}"
        raise AuditError(message, why=f"{first.rstrip('.')}.") from error


def adjust(records: tuple[AuditRecord, ...]) -> tuple[AuditRecord, ...]:
    """Adjust the p-value of each record: the smallest risk of the whole suite at which it would say 'violation'.

    Every audit has an even part of that risk, for its verdict and its bounds together; Holm's procedure would need a
    risk beside that of the bounds. [docs/validity.md, section 7]
    """

    def audits(record: AuditRecord) -> int:
        # records of a part of a suite still share the risk of the whole suite
        return len(records) if record.suite is None else record.suite.audits

    return tuple(
        dataclasses.replace(record, adjusted_p_value=among(audits(record), record.p_value, look=record.look))
        for record in records
    )


def audit_key(seed: int, name: str, look: int = 0) -> jax.Array:
    """The key of one audit of a suite; every look has its own."""
    return fold_in(key_from_seed(seed), *folded(name, look))


def _deadline(spec: AuditSpec, end: float | None, remaining: int) -> float | None:
    """The earlier of the audit's own budget and its even share of what is left of the suite's."""
    now = time.monotonic()
    limits = [now + spec.time_budget] if spec.time_budget is not None else []
    if end is not None:
        limits.append(now + max(0.0, end - now) / remaining)
    return min(limits) if limits else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptResults:
    """What an interrupted run left of one audit, and whether it may be used."""

    place: Checkpoint | None
    told: Callable[[str], None]
    use: bool

    def record(self, name: str) -> AuditRecord | None:
        """The finished audit, if it was kept and nothing changed."""
        found = self.place.finished() if self.place is not None and self.use else None
        if found is not None:
            self.told(f"{name!r}: reused; it was finished before the interruption.")
        elif self.place is not None and self.use and (changed := self.place.changed(name)):
            words = " and ".join(CHANGED.get(part, part) for part in changed)
            be = "is" if len(changed) == 1 else "are"
            self.told(f"{name!r}: an earlier result is not used, because {words} {be} not the same; it runs again.")
        return found

    def tally(self, spec: AuditSpec) -> Tally | None:
        """The counts so far, if any were kept."""
        found = self.place.started(at_most=spec.trials // 2) if self.place is not None and self.use else None
        if found is not None:
            self.told(f"{spec.name!r}: continued after {2 * found.trials_per_side:,} of {spec.trials:,} trials.")
        return found


def _run(
    audit: Built,
    suite: Suite,
    risk: float,
    deadline: float | None,
    kept: KeptResults,
    fitting: Callable[[AuditSpec, int, int], None],
    progress: Callable[[AuditSpec, Tally], None],
    foreseen: Callable[[AuditSpec, str], None],
    executor: Executor,
) -> AuditRecord:
    """Run one audit, or take its kept record; its counts are saved as it runs."""
    spec, place = audit.spec, kept.place
    if (known := kept.record(spec.name)) is not None:
        return known
    saver = Saver(place) if place is not None else None

    def report(tally: Tally) -> None:
        if saver is not None:
            saver(tally)
        progress(spec, tally)

    def audited(resume: Tally | None) -> AuditRecord:
        return run_audit(
            audit.mechanism,
            audit.neighbours,
            audit.distinguisher,
            claim=audit.claim,
            trials=spec.trials,
            risk=risk,
            key=audit_key(suite.seed, spec.name, suite.look),
            delta=spec.delta,
            policy=audit.policy,
            target=spec.target,  # type: ignore[arg-type]
            name=spec.name,
            expect=spec.expect,  # type: ignore[arg-type]
            diagnose=spec.diagnose,
            execution=Execution(
                executor=executor,
                deadline=deadline,
                progress=report,
                fitting=lambda drawn, planned: fitting(spec, drawn, planned),
                foreseen=lambda says: foreseen(spec, says),
                resume=resume,
            ),
        )

    try:
        try:
            record = audited(kept.tally(spec))
        except StaleCountsError as error:
            kept.told(f"{spec.name!r}: started over, {error}")
            record = audited(None)
    except BaseException:
        if saver is not None:
            # where even this cannot be written, the counts before it are there
            with contextlib.suppress(OSError):
                saver.flush()
        raise
    if place is not None:
        place.close(record)
    return record


def _decided_by(audit: Built, suite: Suite, risk: float, code: str, executor: Executor) -> dict[str, Any]:
    """Digests of everything that determines the numbers of an audit."""
    return decided_by(
        parts=(audit.mechanism, audit.neighbours, audit.distinguisher, audit.policy),
        claim=audit.claim,
        files=audit.mechanism.files,
        code=code,
        device=executor.device,
        others={
            "spec": plain(
                {key: value for key, value in dataclasses.asdict(audit.spec).items() if key not in ("where", "places")}
            ),
            "seed": suite.seed,
            "look": suite.look,
            "risk": risk,
        },
    )
