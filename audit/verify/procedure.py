"""Verify records: compare every derived value with its record made again, and list every primary value."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from audit.record.record import AuditRecord
from audit.record.unrun import emptied
from audit.risk import RiskBudget
from audit.suites.each_audit import key_text, risk_of_each
from audit.suites.suite import Suite
from audit.trials.user_code_errors import sentence
from audit.trials.versions import own_code, version_of
from audit.verify.contradictions import ContradictedError, in_itself, missing, repeated, with_suite
from audit.verify.primary import SENTENCES, Source, primary_keys
from audit.verify.rebuild import NotComputedError, Rebuilt, dependent, rebuild, source_is_told
from audit.verify.record_values import ABSENT, NOTHING, agree, key_of, leaves, told, under
from guarantees.checks import require
from guarantees.laws.kept import found_on_disk

if TYPE_CHECKING:
    from audit.suites.build import Built

State = Literal["right", "wrong", "not computed", "not checked"]
""""not computed": inputs or code of a derived value are missing. "not checked": trials that were not drawn again."""
WORDED = "sentences that follow from the counts"
HEADINGS: dict[str, tuple[str, ...]] = {
    "counts": ("trials", "points.counts", "grids", "state", "one_run", "scores"),
    "limits": ("points", "band"),
    "numbers": ("numbers", "budget", "risk"),
    "claim": ("claim",),
    "exact curve": ("theory", "exact_epsilon"),
    "diagnoses that follow from the counts": ("diagnoses",),
    WORDED: SENTENCES,
}
VERDICT = "verdict"
"""Heading of all other values."""
DERIVED = "all derived values"
FROM_COUNTS = (DERIVED, VERDICT, "counts", "limits", "numbers", "claim")
"""Headings that `compare` relies on."""
TRIALS = "trials drawn again"
AUDITED = "what was audited"
TINY = ("claim.error",)
"""Numbers that matter however small they are."""
ONLY_SCORES = "the trials were drawn elsewhere, and only their scores were given; run `bound` again on the same files"
SHOWN = 3
"""Most differences in one line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """Whether some derived values of a record follow from its primary ones."""

    audit: str
    what: str
    state: State
    says: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Primary:
    """Primary values of a record under one key."""

    audit: str
    key: str
    values: int
    source: Source
    drawn_again: bool
    in_suite: bool = False
    """Whether it was compared with the suite."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verified:
    """The result of verifying a file of records."""

    checks: tuple[Check, ...]
    primary: tuple[Primary, ...]
    from_cache: int = 0
    """Curves and searched numbers that were read from disk instead of computed again."""

    def any(self, state: State) -> bool:
        """Whether any check has this state."""
        return any(check.state == state for check in self.checks)

    @property
    def drawn_in_part(self) -> int:
        """Number of audits of which only some values that trials make were made again."""
        again = {check.audit for check in self.checks if check.what == TRIALS and check.state == "right"}
        return len(again - {each.audit for each in self.primary if each.drawn_again})

    @property
    def all_drawn(self) -> bool:
        """Whether every primary value that trials or a training make was made again; never true for a training."""
        return all(each.drawn_again for each in self.primary if each.source != "told")


def verify(
    records: Sequence[AuditRecord],
    *,
    rerun: float = 0.0,
    suite: Suite | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> Verified:
    """Derive every record again from its primary values and compare; draw a share ``rerun`` of the trials again.

    Trials are drawn from what the record names, or from what the ``suite`` names: only the suite can name a user's
    code, and differences between record and suite are wrong. Sentences are compared if this version made the record,
    and are wrong if this very code did. ``told`` is called with a sentence before each audit that is drawn again, which
    may take long.
    """
    require("rerun", 0 <= rerun <= 1, "in [0, 1]", rerun)
    checks = [Check(audit="", what="suite", state="wrong", says=says) for says in repeated(records)]
    checks += [Check(audit="", what="suite", state="not computed", says=says) for says in missing(records)]
    primary: list[Primary] = []
    before = found_on_disk()
    for record in records:
        if not record.ran:
            checks.append(dataclasses.replace(_check_unrun(record), audit=record.name))
            primary += _primary(record, None, drawn_again=False)
            continue
        rebuilt, reason = _rebuilt(record, suite)
        found = [reason] if rebuilt is None and reason is not None else _compared(record, rebuilt)
        found.append(_audited(record, None if rebuilt is None else rebuilt.stated, suite))
        again = _redrawn(record, rebuilt, rerun, suite, told) if rerun else None
        if again is not None:
            found.append(again[0])
        checks += [dataclasses.replace(check, audit=record.name) for check in found]
        primary += _primary(record, rebuilt, drawn_again=again is not None and again[1])
    return Verified(checks=tuple(checks), primary=tuple(primary), from_cache=found_on_disk() - before)


def contradiction(record: AuditRecord) -> str | None:
    """Say how a record contradicts its own counts, if it does; its exact curve is not checked, as that takes longer."""
    if not record.ran:
        return None
    rebuilt, reason = _rebuilt(record, None, curve=False)
    found = _compared(record, rebuilt) if reason is None else [reason]
    wrong = [check for check in found if check.state == "wrong" and check.what in FROM_COUNTS]
    return f"{wrong[0].what}: {wrong[0].says}" if wrong else None


def _check_unrun(record: AuditRecord) -> Check:
    """Check that the record of an audit that could not run has nothing that needs a trial."""
    again = emptied(record)
    if record.suite is not None:
        risk, key = risk_of_each(record.suite, record.look), key_text(record.suite.seed, record.name, record.look)
        again = dataclasses.replace(again, risk=risk, budget=RiskBudget(risk=risk), key=key)
    stated, computed = (dict(leaves(version.to_json())) for version in (record, again))
    wrong = [
        f"{path}: {told(stated.get(path, ABSENT))} recorded, {told(computed.get(path, ABSENT))} computed"
        for path in {**stated, **computed}
        if not agree(stated.get(path, ABSENT), computed.get(path, ABSENT), nothing=NOTHING)
    ]
    if wrong:
        return _check("nothing was drawn", wrong, [], "")
    says = "the audit could not run, and its record proves nothing"
    return Check(audit="", what="nothing was drawn", state="right", says=says)


def _rebuilt(record: AuditRecord, suite: Suite | None, *, curve: bool = True) -> tuple[Rebuilt | None, Check | None]:
    """The record made again, or a check that says why not."""
    try:
        return rebuild(record, suite, curve=curve), None
    except NotComputedError as error:
        return None, Check(audit="", what=DERIVED, state="not computed", says=str(error))
    except ValueError as error:
        return None, Check(audit="", what=DERIVED, state="wrong", says=str(error))


def _audited(record: AuditRecord, stated: Built | None, suite: Suite | None) -> Check:
    """Check that what was audited is consistent, and agrees with the suite if one is given."""
    wrong = in_itself(record)
    if stated is not None and not record.conditions:
        wrong += with_suite(record, stated)
    named = suite is None or any(spec.name == record.name for spec in suite.audits)
    missing = [] if named else [f"the suite has no audit {record.name!r}"]
    return _check(AUDITED, wrong, missing, _other_version(record) if stated is not None else "")


def _compared(record: AuditRecord, rebuilt: Rebuilt | None) -> list[Check]:
    """A check for every heading under which the record has values."""
    assert rebuilt is not None
    stated = dict(leaves(record.to_json()))
    computed = dict(leaves(rebuilt.record.to_json()))
    other_version = _other_version(record)
    wrong: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    for path in {**stated, **computed}:
        key = key_of(path)
        heading = _heading(key)
        unknown = under(key, rebuilt.unknown)
        if unknown is not None:
            missing.setdefault(heading, []).append(f"{unknown}: {rebuilt.unknown[unknown]}")
        elif other_version and under(key, SENTENCES):
            missing.setdefault(heading, []).append(other_version)
        else:
            wrong.setdefault(heading, [])
            pair = stated.get(path, ABSENT), computed.get(path, ABSENT)
            if not agree(*pair, nothing=0.0 if key in TINY else NOTHING):
                wrong[heading].append(f"{path}: {told(pair[0])} recorded, {told(pair[1])} computed")
    return [
        _check(heading, wrong.get(heading, []), missing.get(heading, []), other_version or _other_code(record, heading))
        for heading in {**wrong, **missing}
    ]


def _check(what: str, wrong: list[str], missing: list[str], other: str) -> Check:
    """A check; differences are not called wrong if another version, whose rules may differ, made the record."""
    if wrong:
        more = f"; and {len(wrong) - SHOWN:,} more" if len(wrong) > SHOWN else ""
        says = "; ".join(wrong[:SHOWN]) + more
        if not other:
            return Check(audit="", what=what, state="wrong", says=says)
        return Check(audit="", what=what, state="not computed", says=f"{other}; {says}")
    if missing:
        return Check(audit="", what=what, state="not computed", says="; ".join(dict.fromkeys(missing)))
    return Check(audit="", what=what, state="right", says="")


@functools.lru_cache(maxsize=4096)
def _heading(key: str) -> str:
    """Heading of a key."""
    if under(key, SENTENCES):
        return WORDED
    found = {heading: under(key, keys) for heading, keys in HEADINGS.items()}
    named = {heading: head for heading, head in found.items() if head is not None}
    return max(named, key=lambda heading: len(named[heading]), default=VERDICT)


def _other_version(record: AuditRecord) -> str:
    """Say which version made the record, if it is not this one; otherwise ""."""
    made, own = record.environment.get("dpsgd_audit", "an unknown one"), version_of("dpsgd-audit")
    return "" if made == own else f"other version: made by {made}, this is {own}"


def _other_code(record: AuditRecord, heading: str) -> str:
    """Say that other code of the same version may have worded sentences; numbers mean the same in any code."""
    same = record.environment.get("own_code") == own_code()
    return "" if same or heading != WORDED else "worded by another version of the code"


def _redrawn(
    record: AuditRecord, rebuilt: Rebuilt | None, share: float, suite: Suite | None, told: Callable[[str], None]
) -> tuple[Check, bool]:
    """Draw trials again; the second result says whether everything that trials make was made again."""

    def drawing(trials: int) -> None:
        fixing = f", and all {record.fit_trials:,} fit trials, which fix the test" if record.fit_trials else ""
        told(
            f"{record.name!r}: drawing {2 * trials:,} of {record.trials:,} trials again{fixing}; the run took "
            f"{record.seconds:.3g} s."
        )

    def skipped(why: Any) -> tuple[Check, bool]:
        return Check(audit="", what=TRIALS, state="not checked", says=f"{why}"), False

    if rebuilt is None:
        return skipped("the record could not be derived again")
    if rebuilt.audited is None:
        once = record.one_run is not None
        return skipped("the coins of one training cannot be tossed again" if once else ONLY_SCORES)
    # imported here, since comparing needs no JAX
    from audit.verify.redraw import redrawn

    try:
        again = redrawn(record, rebuilt.audited, share, suite, drawing=drawing)
    except ContradictedError as error:
        return _check(TRIALS, [sentence(error)], [], _other_version(record)), False
    except (TypeError, ValueError, ImportError, RuntimeError, OverflowError) as error:
        return skipped(f"they cannot be drawn: {sentence(error)}")
    if again.wrong:
        says = "; ".join(again.wrong[:SHOWN])
        return Check(audit="", what=TRIALS, state="wrong", says=says), False
    return Check(audit="", what=TRIALS, state="right", says=again.says), again.in_full


def _primary(record: AuditRecord, rebuilt: Rebuilt | None, *, drawn_again: bool) -> list[Primary]:
    """Primary values by their keys, in the order of the record."""
    known = primary_keys(
        record, theory_known=rebuilt is None or rebuilt.theory_known, source_told=source_is_told(record.claim.name)
    )
    derived = record.verdict == "violation" and not dependent(record)
    last = f"diagnoses[{len(record.diagnoses) - 1}]" if derived else None
    found: Counter[str] = Counter()
    for path, _ in leaves(record.to_json()):
        head = under(key_of(path), dict(known))
        # after a violation the last diagnosis is derived from the points, unless trials depend on each other
        if head is not None and not (last and path.startswith(last)):
            found[head] += 1
    return [
        Primary(
            audit=record.name,
            key=key,
            values=values,
            source=known[key],
            drawn_again=drawn_again and known[key] == "drawn",
            in_suite=rebuilt is not None and rebuilt.stated is not None and not record.conditions,
        )
        for key, values in found.items()
    ]
