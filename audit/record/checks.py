"""Check that the numbers of a record make sense before a report uses them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Mu
from audit.record.read import require_key
from audit.record.record import AuditRecord, Band, Curve, OneRunPart, ScoreGrid
from audit.record.vouched import ScoresPart
from audit.trials.seeds import SEEDS
from audit.verdict.proven_numbers import ProvenNumber


def check(record: AuditRecord) -> None:
    """Raise a SchemaError that names the first key whose value makes no sense."""
    for key in ("p_value", "adjusted_p_value", "risk"):
        value = getattr(record, key)
        require_key(key, 0 <= value <= 1, "a probability", value)
    require_key("report_delta", 0 <= record.report_delta < 1, "in [0, 1)", record.report_delta)
    for key in ("trials", "trials_planned", "fit_trials", "look"):
        value = getattr(record, key)
        require_key(key, 0 <= value < 2**63, "in 0..2^63 - 1", value)
    most = record.trials_planned
    require_key("trials", record.trials <= most, f"at most the {most} that were planned", record.trials)
    require_key("seconds", 0 <= record.seconds < math.inf, "at least 0", record.seconds)
    require_key("policy.kind", isinstance(record.policy.get("kind"), str), "a string", record.policy.get("kind"))
    if not record.ran:
        _check_unrun(record)
        _check_claim(record)
        return
    if record.one_run is not None:
        _check_guesses(record, record.one_run)
        _check_claim(record)
        return
    require_key("points", len(record.points) > 0, "at least one", record.points)
    names = [grid.member for grid in record.grids]
    members = set(names)
    require_key("grids", len(members) == len(names), "of distinct members", names)
    for index, point in enumerate(record.points):
        require_key(f"points[{index}].member", point.member in members, f"one of {sorted(members)}", point.member)
        for key in ("risk", "alpha_upper", "beta_upper"):
            _require_rates(f"points[{index}].{key}", [getattr(point, key)])
    for index, number in enumerate(record.numbers):
        _check_number(f"numbers[{index}]", number)
    if record.suite is not None:
        _require_rates("suite.risk", [record.suite.risk])
        require_key("suite.audits", 1 <= record.suite.audits < 2**63, "at least 1", record.suite.audits)
        require_key("suite.seed", 0 <= record.suite.seed < SEEDS, f"in 0..{SEEDS - 1}", record.suite.seed)
    budget = record.budget
    require_key(
        "budget.risk", math.isclose(budget.risk, record.risk), f"the record's risk {record.risk:g}", budget.risk
    )
    _check_claim(record)
    _require_rates("band.risk", [record.band.risk])
    _check_curve("band", record.band)
    if record.theory is not None:
        _check_curve("theory", record.theory)
    require_key("grids", len(record.grids) > 0, "at least one", record.grids)
    for index, grid in enumerate(record.grids):
        _check_grid(f"grids[{index}]", grid, None if record.scores is not None else record.trials_per_side)
    if record.scores is not None:
        _check_scores(record, record.scores)


def _check_unrun(record: AuditRecord) -> None:
    """Check that an audit which could not run has no trials, nor any number that would need some."""
    for key in ("points", "numbers", "grids", "diagnoses", "theory", "violated_at", "trials", "fit_trials"):
        value = getattr(record, key)
        require_key(key, not value, "empty in an audit that could not run", value)
    for key in ("p_value", "adjusted_p_value"):
        value = getattr(record, key)
        require_key(key, value == 1, "1 in an audit that could not run", value)


def _check_guesses(record: AuditRecord, once: OneRunPart) -> None:
    """Check that one training has guesses in place of trials, and that their shares sum to the risk."""
    for key in ("points", "numbers", "grids", "trials", "fit_trials"):
        value = getattr(record, key)
        require_key(key, not value, "empty for one training", value)
    require_key("one_run.guesses", len(once.guesses) > 0, "at least one", once.guesses)
    require_key("one_run.included", 0 <= once.included <= once.canaries, "at most the canaries", once.included)
    for index, guesses in enumerate(once.guesses):
        key = f"one_run.guesses[{index}]"
        require_key(f"{key}.canaries", guesses.canaries <= once.canaries, f"at most {once.canaries}", guesses.canaries)
        require_key(f"{key}.guessed_in", 1 <= guesses.guessed <= guesses.canaries, "1 guess or more", guesses.guessed)
        right = 0 <= guesses.right_in <= guesses.guessed_in and 0 <= guesses.right_out <= guesses.guessed_out
        require_key(f"{key}.right_in", right, "at most the guesses", guesses.right)
    spent = sum(guesses.risk for guesses in once.guesses)
    require_key("one_run.guesses", spent <= record.risk * (1 + 1e-9), "within the record's risk", spent)


def _check_scores(record: AuditRecord, part: ScoresPart) -> None:
    """Check that given scores have one grid, and that each test judged all that were to be judged."""
    require_key("grids", len(record.grids) == 1, "one grid of given scores", len(record.grids))
    require_key("trials", record.trials == sum(record.judged), f"the {sum(record.judged)} judged", record.trials)
    edges, targets = record.grids[0].edges, sorted(record.budget.shares)
    for index, point in enumerate(record.points):
        key, judged = f"points[{index}]", (point.counts.trials_without, point.counts.trials_with)
        require_key(f"{key}.counts", judged == record.judged, f"of {record.judged} trials", judged)
        require_key(f"{key}.threshold", point.threshold in edges, "an edge of the grid", point.threshold)
        require_key(f"{key}.rejects", point.rejects in ("above", "below"), "'above' or 'below'", point.rejects)
        require_key(f"{key}.target", point.target in targets, f"one of {targets}", point.target)
    learned = part.learned_from or (0, 0)
    require_key("scores.learned_from", min(learned) >= 0, "counts, none of them negative", learned)


def _check_claim(record: AuditRecord) -> None:
    """Check the numbers of the claim."""
    claim = record.claim
    require_key("claim.epsilon", claim.epsilon is None or claim.epsilon >= 0, "at least 0", claim.epsilon)
    require_key("claim.times", 1 <= claim.times < 2**63, "at least 1", claim.times)
    _require_rates("claim.advantage", [claim.advantage])
    _check_curve("claim.curve", claim.curve)
    alpha = claim.curve.alpha
    require_key("claim.curve.alpha", len(alpha) >= 2, "two numbers or more", alpha)
    growing = all(a <= b for a, b in itertools.pairwise(alpha)) and alpha[0] < alpha[-1]
    require_key("claim.curve.alpha", growing, "in increasing order", alpha)


def _check_number(key: str, number: ProvenNumber) -> None:
    """Check that an epsilon, delta or mu, and what it is given for, are in their ranges."""
    largest = {each.name: each.largest for each in (EpsilonAt, DeltaAt, Mu)}
    require_key(f"{key}.name", number.name in largest, f"one of {sorted(largest)}", number.name)
    _require_rates(f"{key}.risk", [number.risk])
    for name in ("at_least", "rectangle"):
        value, most = getattr(number, name), largest[number.name]
        require_key(f"{key}.{name}", 0 <= value <= most, f"in [0, {most:g}]", value)
    given = number.given
    if number.name == "mu":
        require_key(f"{key}.given", given is None, "null for mu", given)
    else:
        most = 1.0 if number.name == "epsilon" else EpsilonAt.largest
        require_key(f"{key}.given", given is not None and 0 <= given <= most, f"in [0, {most:g}]", given)


def _check_curve(key: str, curve: Curve | Band) -> None:
    """Check the points of a curve."""
    require_key(f"{key}.beta", len(curve.alpha) == len(curve.beta), "as long as alpha", curve.beta)
    _require_rates(f"{key}.alpha", curve.alpha)
    _require_rates(f"{key}.beta", curve.beta)


def _check_grid(key: str, grid: ScoreGrid, trials: int | None) -> None:
    """Check edges and counts of a grid; ``trials`` is what each side must sum to, if known."""
    ordered = all(a <= b for a, b in itertools.pairwise(grid.edges))
    require_key(f"{key}.edges", ordered, "in increasing order", grid.edges)
    for side in ("without", "with_record"):
        counts = getattr(grid, side)
        require_key(f"{key}.{side}", len(counts) == len(grid.edges) + 1, "one more than edges", counts)
        require_key(f"{key}.{side}", min(counts) >= 0, "counts, none of them negative", counts)
        right = sum(counts) > 0 and trials in (None, sum(counts))
        require_key(f"{key}.{side}", right, f"counts of {trials or 'some'} trials", sum(counts))


def _require_rates(key: str, values: Sequence[float]) -> None:
    """Refuse numbers outside [0, 1]."""
    wrong = next((value for value in values if not 0 <= value <= 1), None)
    require_key(key, wrong is None, "in [0, 1]", wrong)
