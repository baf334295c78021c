"""What the fixture of dpsgd_audit.pytest_plugin does: audits as tests, their failures and their report."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from audit.suites.read import seconds
from audit.suites.suite import SuiteError
from audit.trials.seeds import require_seed
from dpsgd_audit.spelling import counted, did_you_mean
from guarantees.checks import checked

if TYPE_CHECKING:
    import jax

    from audit.diagnosis.explain.findings import Explanation
    from audit.policies.policy import Policy
    from audit.record.record import AuditRecord
    from distinguishers.contract import Distinguisher, Learner
    from guarantees.claim import Claim
    from mechanisms.pairs.neighbours import Neighbours

MARKER_OPTIONS = ("trials", "risk", "delta", "time_budget")
MOST_NAMES = 8
FIRST_CALL = 0.9
"""Of a test's risk: most tests audit once."""
UNDECLARED = (
    "dp_audit must be among the test's arguments or those of its fixtures: the session's risk is shared before any "
    "test runs, and request.getfixturevalue('dp_audit') comes too late. @pytest.mark.usefixtures('dp_audit') will do."
)


class InconclusiveAuditWarning(UserWarning):
    """An audit had too few trials to say anything, or a replay did not judge some code."""


class LooksWrong(pytest.fail.Exception):
    """Fails a test in which ``dp_explain`` finds lines that look wrong; the summary and the page name them."""

    def __init__(self, told: Explanation):
        super().__init__(str(told), pytrace=False)
        self.dp_explain_found = [found.heading for found in told.suspicions]


class LooksWrongWarning(UserWarning):
    """A replay of the code shows a fault that no trial of the audit did; the test passes as its trials were counted."""


def _declares(item: Any) -> bool:
    """Whether the test names the fixture, itself or through others: what is known before any test runs."""
    return "dp_audit" in getattr(item, "fixturenames", ())


def share_of_call(call: int) -> float:
    """The part of a test's risk that its k-th audit spends: 0.9, then 0.1 / ((k - 1) k); the sum stays below 1."""
    return FIRST_CALL if call == 1 else (1 - FIRST_CALL) / ((call - 1) * call)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spent:
    """What one call of a test may use."""

    call: str
    risk: float
    key: jax.Array


class Auditor:
    """The fixture's value. The session's risk is shared by the tests that use it, and a test's by its calls."""

    def __init__(self, request: pytest.FixtureRequest, *, kept: pytest.StashKey[list[dict[str, Any]]], trials: int):
        self._kept, self._trials = kept, trials
        self._node = request.node
        self._config = request.config
        if not _declares(request.node):
            pytest.fail(UNDECLARED, pytrace=False)
        try:
            require_seed(self._option("seed"))
        except ValueError as error:
            raise pytest.UsageError(f"--dp-audit-{error}") from None
        self._share = self._option("risk") / sum(map(_declares, request.session.items))
        self._calls = 0

    def __call__(
        self,
        step: Any,
        neighbours: Neighbours,
        distinguisher: Distinguisher | Learner | Callable[..., Any] | None = None,
        *,
        claim: Claim,
        trials: int | None = None,
        delta: float | None = None,
        policy: Policy | None = None,
        name: str | None = None,
    ) -> AuditRecord:
        """Run one audit, at ``share_of_call`` of the test's share."""
        from audit.procedure import run_audit
        from audit.report.diagnoses import beside_the_verdict, heading, looks_wrong
        from audit.trials.execution import Execution

        stated, spent = self._stated(), self.spend()
        record = run_audit(
            step,
            neighbours,
            distinguisher,
            claim=claim,
            trials=self.trials(trials),
            risk=spent.risk,
            key=spent.key,
            delta=delta if delta is not None else stated.get("delta", 1e-5),
            policy=policy,
            name=name or spent.call,
            execution=Execution(deadline=self._deadline(stated)),
        )
        self._node.stash.setdefault(self._kept, []).append(record.to_json())
        strict = self._option("inconclusive") == "fail"
        if record.verdict == "violation" or (record.verdict == "inconclusive" and strict):
            pytest.fail(self._failure(record), pytrace=False)
        if record.verdict == "inconclusive":
            warnings.warn(InconclusiveAuditWarning(f"{record.name}: {record.reason}"), stacklevel=2)
        if beside_the_verdict(record):
            told = " ".join(looks_wrong(record.diagnoses))
            warnings.warn(LooksWrongWarning(f"{record.name}: {heading(record)}: {told}"), stacklevel=2)
        return record

    def trials(self, asked: int | None = None) -> int:
        """Outputs of an audit: what the test asks for, the command line, the marker, or the default."""
        return asked or self._option("trials") or self._stated().get("trials") or self._trials

    def spend(self) -> Spent:
        """The next call's part of the risk and its key, for a test of any kind; what is spent does not come back."""
        from audit.suites.run import audit_key

        self._calls += 1
        call = self._node.nodeid if self._calls == 1 else f"{self._node.nodeid} #{self._calls}"
        risk = self._stated().get("risk", self._share) * share_of_call(self._calls)
        return Spent(call=call, risk=risk, key=audit_key(self._option("seed"), call))

    def tell(self, name: str, value: Any) -> None:
        """A property of this test in its report, as JUnit files have them."""
        self._node.user_properties.append((name, value))

    def _option(self, name: str) -> Any:
        return self._config.getoption(f"--dp-audit-{name}")

    def _stated(self) -> dict[str, Any]:
        """The marker's options, the nearest marker first."""
        stated = {}
        for marker in self._node.iter_markers("dp_audit"):
            for option in marker.kwargs:
                if option not in MARKER_OPTIONS:
                    allowed = ", ".join(MARKER_OPTIONS)
                    pytest.fail(
                        f"dp_audit marker: unknown option {option!r}{did_you_mean(option, MARKER_OPTIONS)}. "
                        f"Allowed: {allowed}.",
                        pytrace=False,
                    )
            stated = {**marker.kwargs, **stated}
        return stated

    def _deadline(self, stated: dict[str, Any]) -> float | None:
        budget = self._option("budget") or stated.get("time_budget")
        if budget is None:
            return None
        try:
            return time.monotonic() + seconds(budget, "--dp-audit-budget")
        except SuiteError as error:
            raise pytest.UsageError(str(error)) from None

    def _failure(self, record: AuditRecord) -> str:
        from audit.report.text import record_lines

        return "\n".join([*record_lines(record), f"  reproduce: {self.reproduce()}"])

    def reproduce(self) -> str:
        """The command that repeats this test."""
        # run alone, the test has the whole risk: stating its share gives the same thresholds and bounds
        again = f'pytest "{self._node.nodeid}" --dp-audit-seed={self._option("seed")} --dp-audit-risk={self._share!r}'
        if (trials := self._option("trials")) is not None:
            again += f" --dp-audit-trials={trials}"
        return " ".join([again, *map(shlex.quote, _given_to_conftests(self._config))])


class _ConftestOptions:
    """Stands for pytest's parser where a conftest adds its options: they alone are then found in a command line."""

    def __init__(self) -> None:
        self._parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        self.addoption = self._parser.add_argument

    def getgroup(self, *_: Any, **__: Any) -> _ConftestOptions:
        return self

    def addini(self, *_: Any, **__: Any) -> None:
        """No word of a command line."""

    def words(self, line: Sequence[str]) -> list[str]:
        """The words that these options take."""
        left, taken = self._parser.parse_known_args(line)[1], []
        for word in line:
            if left[:1] == [word]:
                left.pop(0)
            else:
                taken.append(word)
        return taken


def _given_to_conftests(config: pytest.Config) -> list[str]:
    """What this session's command line tells conftests, which may choose what is audited."""
    of_conftests = _ConftestOptions()
    known = {"parser": of_conftests, "pluginmanager": config.pluginmanager}
    for added in config.hook.pytest_addoption.get_hookimpls():
        if Path(getattr(added.plugin, "__file__", None) or "").name == "conftest.py":
            added.function(*(known[name] for name in added.argnames))
    # a worker of pytest-xdist is told what started the session
    line = getattr(config, "workerinput", {}).get("mainargv", ["", *config.invocation_params.args])[1:]
    return of_conftests.words([str(word) for word in line])


@checked
def dp_explain(
    step: Any,
    neighbours: Neighbours,
    *,
    claim: Claim | None = None,
    noise_multiplier: float | None = None,
    key: jax.Array | None = None,
) -> Explanation:
    """What ``audit.explain`` says of a step, with a fixed key; the test fails where a line looks wrong.

    Code that was not judged passes with a warning.
    """
    from audit.diagnosis.explain import explain
    from audit.trials.keys import key_from_seed

    own = key_from_seed(0) if key is None else key
    told = explain(step, neighbours, key=own, claim=claim, noise_multiplier=noise_multiplier)
    if told.suspicions:
        raise LooksWrong(told)
    if told.not_judged:
        said = " ".join(found.says for found in told.not_judged)
        warnings.warn(InconclusiveAuditWarning(f"dp_explain: {said}"), stacklevel=3)
    return told


def looked_at(found: Sequence[dict[str, Any]], explained: Sequence[str] = ()) -> list[str]:
    """What a session without a violation looked at, and what no audit of it did; nothing after a violation.

    ``explained`` names the tests that passed with ``dp_explain``.
    """
    from audit.record.stored import from_json

    records = [from_json(data) for data in found]
    if any(record.verdict == "violation" for record in records):
        return []
    open_ones = sum(record.verdict == "inconclusive" for record in records)
    pairs = {(record.neighbours.describe(), record.neighbours.kind) for record in records}
    relations = sorted({relation for _, relation in pairs})
    steps = sorted(f"{record.mechanism.name} in {record.name}" for record in records)
    scores = sorted({grid.member for record in records for grid in record.grids})
    trials = sum(record.trials for record in records)
    told = f", {open_ones} inconclusive" if open_ones else ""
    return [
        f"dp-audit: {counted(len(records), 'audit')}, no violation found{told}.",
        f"  looked at: {_listed(steps)}; on {counted(len(pairs), 'pair')} of neighbours ({_listed(relations)}), "
        f"{trials:,} trials in all, by the scores {_listed(scores)}.",
        *([f"  replayed by dp_explain, without a trial: {_listed(explained)}."] if explained else []),
        "  not looked at: other data and other neighbours, leaks that none of these scores sees, code that these calls "
        "do not run, timing and other side channels. No violation found does not mean private.",
    ]


def _listed(names: Sequence[str]) -> str:
    """A few names, made visible; of many the first ones and their number."""
    from audit.report.escaping import visible

    shown = ", ".join(map(visible, names[:MOST_NAMES]))
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"


def look_wrong(suspected: Sequence[str]) -> list[str]:
    """What ``dp_explain`` found, test by test; nothing if it found nothing."""
    from audit.report.escaping import visible

    tests = counted(len({each.partition(": ")[0] for each in suspected}), "test")
    head = f"dp-audit: lines look wrong in {tests} of dp_explain, which draws no trials:"
    return [head, *(f"  {visible(each)}" for each in suspected)] if suspected else []


def report(found: Sequence[dict[str, Any]], folder: str, suspected: Sequence[str] = ()) -> Path:
    """Write records.json and index.html of a session, and say where the page is."""
    from audit.record.stored import from_json, save_records
    from audit.report.page import write_report

    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    records = tuple(sorted(map(from_json, found), key=lambda record: record.name))
    save_records(records, out / "records.json")
    return write_report(records, out, title="pytest", replayed=tuple(suspected))
