"""Recover from a record what its audit fixed and counted, and derive the same record from that again."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

import guarantees
from audit.goal import Goal
from audit.policies.catalogue import RECORDED
from audit.policies.policy import Policy, Test
from audit.record.derive import Audited, Subject, cuts_of, derive, edges_of
from audit.record.diagnosis_answer import DEPENDENT, LINE, LINE_NOT_FOLLOWED, NO_HINTS, STILL, Diagnosis
from audit.record.direction import direction
from audit.record.of_one_run import judged_again
from audit.record.of_scores import scores_judged_again
from audit.record.record import AuditRecord
from audit.suites.claim_names import CLAIMS
from audit.suites.each_audit import among, key_text, risk_of_each
from audit.suites.suite import Suite, SuiteError
from audit.trials.source import Tally
from audit.trials.user_code_errors import sentence
from audit.verify.record_values import as_tuple
from guarantees.claim import Claim
from guarantees.trade_off import TradeOff

if TYPE_CHECKING:
    from audit.suites.build import Built

WITHOUT_CURVE = ("battery", "learned", "max_coordinate", "normality_test", "projection", "norm", "ratio", "contrast")
"""Our distinguishers that know no exact curve."""
NO_STATE = "the audit could stop early, and the record does not hold the state of its test"


class NotComputedError(ValueError):
    """Derived values cannot be computed from the record; the message says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """A record made again from its primary values."""

    record: AuditRecord
    audited: Audited | None
    """None for one training, whose coins cannot be tossed again, and for given scores."""
    unknown: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Keys whose values could not be computed, and why; ``record`` has the recorded values there."""
    theory_known: bool = True
    stated: Built | None = None
    """The audit as the suite states it, if a suite is given and names it."""


def rebuild(record: AuditRecord, suite: Suite | None = None, *, curve: bool = True) -> Rebuilt:
    """Everything that is derived, derived again. A ``suite`` supplies claims and policies that have no name here.

    Without ``curve`` the exact one is left as it is.

    Raises:
      NotComputedError: the claim or the policy cannot be built, or the record lacks something.
      ValueError: the record contradicts itself: its tests and counts cannot be judged.
    """
    stated = _stated(record, suite)
    if record.one_run is not None or record.scores is not None:
        again = judged_again if record.one_run is not None else scores_judged_again
        return Rebuilt(record=again(record, _claim(record, stated)), audited=None, stated=stated)
    policy = _policy(record, stated)
    if policy.stops_early and not record.state:
        raise NotComputedError(NO_STATE)
    risk = record.risk if record.suite is None else risk_of_each(record.suite, record.look)
    planned = record.trials_planned // 2
    goal = Goal(claim=_claim(record, stated), delta=record.report_delta, trials_per_side=planned, risk=risk)
    theory, why = _theory(record, stated) if curve else (None, "it was not asked for")
    try:
        test, tally = test_of(record, policy, goal), tally_of(record)
        tally = dataclasses.replace(tally, state=policy.state_of(tally, test))
        audited = Audited(subject=_subject(record), policy=policy, goal=goal, test=test, tally=tally, theory=theory)
        made = derive(audited)
    except Exception as error:
        raise ValueError(f"these tests and counts cannot be judged: {sentence(error)}") from error
    audits = 1 if record.suite is None else record.suite.audits
    p = among(audits, made.p_value, look=record.look)
    made = dataclasses.replace(made, look=record.look, suite=record.suite, adjusted_p_value=p)
    made = dataclasses.replace(made, diagnoses=_diagnoses(record, made))
    if why is None:
        return Rebuilt(record=made, audited=audited, stated=stated)
    made = dataclasses.replace(made, theory=record.theory, exact_epsilon=record.exact_epsilon)
    unknown = {} if record.theory is None else {"theory": why, "exact_epsilon": why}
    return Rebuilt(record=made, audited=audited, unknown=unknown, theory_known=False, stated=stated)


def _diagnoses(record: AuditRecord, made: AuditRecord) -> tuple[Diagnosis, ...]:
    """The measured diagnoses as they are, and the one that is derived from the points."""
    requested = bool(record.diagnoses) if record.diagnose is None else record.diagnose
    if not requested:
        return ()
    if dependent(record):
        # nothing else is asked of such trials, whose points prove no direction
        return tuple(answer for answer in record.diagnoses if answer.code == DEPENDENT or answer.code.startswith(LINE))
    if made.verdict != "violation":
        not_followed = tuple(answer for answer in record.diagnoses if answer.code == LINE_NOT_FOLLOWED)[:1]
        wrong = (answer for answer in record.diagnoses if answer.wrong or answer.code == STILL)
        hints = (answer for answer in wrong if not answer.follows and answer.code not in NO_HINTS)
        return tuple(hints) or not_followed
    derived = direction(made)
    return (*(answer for answer in record.diagnoses[:-1] if answer.code != derived.code), derived)


def dependent(record: AuditRecord) -> bool:
    """Whether trials were found to depend on each other, so that no diagnosis is derived from the points."""
    return any(answer.code == DEPENDENT and answer.wrong for answer in record.diagnoses)


def test_of(record: AuditRecord, policy: Policy, goal: Goal) -> Test:
    """The judged test, with the budget that the policy makes for it."""
    edges, cuts = edges_of(record), cuts_of(record)
    budget = policy.budget(cuts, goal)
    cuts = policy.settle(cuts, edges, budget)
    return Test(cuts=cuts, edges=edges, fit_trials=record.fit_trials, budget=budget)


def tally_of(record: AuditRecord) -> Tally:
    """The counts of a record's grids."""
    without = np.asarray([grid.without for grid in record.grids], np.int64)
    with_record = np.asarray([grid.with_record for grid in record.grids], np.int64)
    trials = int(without[0].sum())
    return Tally(without=without, with_record=with_record, trials_per_side=trials, state=record.state)


def _subject(record: AuditRecord) -> Subject:
    """The fields of a record that are not derived."""
    names = [field.name for field in dataclasses.fields(Subject) if field.name != "members"]
    fields = {name: getattr(record, name) for name in names}
    if record.suite is not None:
        fields["key"] = key_text(record.suite.seed, record.name, record.look)
    return Subject(members=tuple(grid.member for grid in record.grids), **fields)


def _stated(record: AuditRecord, suite: Suite | None) -> Built | None:
    """The audit as the suite states it, if it names this one."""
    spec = next((spec for spec in suite.audits if spec.name == record.name), None) if suite is not None else None
    if spec is None:
        return None
    from audit.suites.build import build

    try:
        return build(spec)
    except SuiteError as error:
        raise NotComputedError(sentence(error)) from None


def _policy(record: AuditRecord, stated: Built | None) -> Policy:
    """The policy of a record, built again."""
    kind = record.policy["kind"]
    if kind not in RECORDED:
        if stated is not None and stated.policy is not None:
            return stated.policy
        raise NotComputedError(
            f"the policy {kind!r} is not one of dpsgd-audit's; give the suite that names it with --suite"
        )
    try:
        return RECORDED[kind].recorded(record.policy, edges_of(record))
    except Exception as error:
        raise NotComputedError(f"the policy {kind!r} cannot be built: {sentence(error)}") from None


def _claim(record: AuditRecord, stated: Built | None) -> Claim:
    """The claim as the suite states it, or built from its name."""
    if stated is not None:
        return stated.claim
    part = record.claim
    if part.name not in CLAIMS:
        raise NotComputedError(
            f"the claim {part.name!r} cannot be built from its name; give the suite that names it with --suite"
        )
    try:
        return _built(part.name, json.dumps(dict(part.parameters)), part.relation, part.times, part.source)
    except Exception as error:
        raise NotComputedError(f"the claim {part.describe()} cannot be built: {sentence(error)}") from None


def source_is_told(name: str) -> bool:
    """Whether the author of such a claim says where it comes from."""
    return name in CLAIMS and "source" in inspect.signature(getattr(guarantees, name)).parameters


@functools.lru_cache(maxsize=16)
def _built(name: str, parameters: str, relation: str, times: int, source: str) -> Claim:
    """Build a claim; cached, as audits of a suite often share one, whose curve is then tabulated once."""
    constructor = getattr(guarantees, name)
    given = {key: as_tuple(value) for key, value in json.loads(parameters).items()}
    if "relation" in inspect.signature(constructor).parameters:
        given.setdefault("relation", relation)
    if source_is_told(name):
        # the source is stated by a person and cannot be derived
        given.setdefault("source", source)
    claim = constructor(**given)
    return claim.compose(times) if times > 1 else claim


def _theory(record: AuditRecord, stated: Built | None) -> tuple[TradeOff | None, str | None]:
    """The exact curve of the distinguisher, if it knows one; or why that cannot be determined."""
    if stated is None and record.theory is None and record.distinguisher.name in WITHOUT_CURVE:
        return None, None
    # imported here, as it takes a while
    from audit.verify.parts import recorded_parts
    from distinguishers.contract import known_curve

    try:
        score = recorded_parts(record).distinguisher if stated is None else stated.distinguisher
    except Exception as error:
        return None, f"the distinguisher cannot be built: {sentence(error)}"
    return known_curve(score), None
