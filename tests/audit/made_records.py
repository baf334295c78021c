"""Records of every policy on scores that NumPy draws: made by the code that makes every record, without compiling."""

import dataclasses

import numpy as np

import distinguishers
import guarantees
import mechanisms
from audit.diagnosis.after_verdict import direction
from audit.goal import Goal
from audit.policies.catalogue import POLICIES
from audit.policies.policy import Policy
from audit.record.derive import Audited, Subject, derive
from audit.record.diagnosis_answer import not_asked
from audit.record.environment import describe_environment, describe_key
from audit.record.record import Part, SuitePart, plain
from audit.suites.earlier_test import test_of
from audit.suites.run import adjust, audit_key, risk_of_each
from audit.trials.source import Source, complete

STEP = mechanisms.gaussian_mechanism(noise_multiplier=0.5)
PAIR = mechanisms.scalar_pair(sensitivity=1.0)
SCORE = distinguishers.likelihood_ratio(STEP, PAIR)
MU = 2.0
"""What the step truly has."""
TIGHT, RIGHT = guarantees.gaussian(mu=1.0), guarantees.gaussian(mu=2.0)


@dataclasses.dataclass(frozen=True)
class Normal(Source):
    """Log-likelihood ratios of the step, without or with the record."""

    seed: int
    mean: float
    chunk: int = 512

    def scores(self, start, stop):
        drawn = np.random.default_rng(self.seed).normal(self.mean, MU, size=stop)[start:]
        return drawn.astype(np.float32)[:, None]

    def cells(self, start, stop, edges):
        place = np.searchsorted(np.asarray(edges[0], np.float32), self.scores(start, stop)[:, 0], side="left")
        return complete(np.bincount(place, minlength=edges.shape[1] + 1)[None], stop - start)


def sides(seed):
    return Normal(seed, -(MU**2) / 2), Normal(seed + 1, MU**2 / 2)


def fitted(count):
    return tuple(side.scores(0, count // 2) for side in sides(1000))


def made(name: str, policy: Policy, *, claim=TIGHT, trials=200, suite=None, seed=10, delta=1e-5):
    """One record, as `run_audit` makes it."""
    risk = 0.05 if suite is None else risk_of_each(suite, 0)
    goal = Goal(claim=claim, delta=delta, trials_per_side=trials // 2, risk=risk)
    test = policy.fix(SCORE.curve, fitted, goal)
    subject = Subject(
        name=name,
        expect="no_violation_found",
        mechanism=Part(name=STEP.name, parameters=plain(STEP.parameters), kind=STEP.kind),
        releases=STEP.releases,
        steps=1,
        neighbours=Part(name=PAIR.name, parameters=plain(PAIR.parameters), kind=PAIR.relation),
        distinguisher=Part(name=SCORE.name, parameters=plain(SCORE.parameters)),
        members=(SCORE.name,),
        key=describe_key(audit_key(3, name)),
        trials_planned=trials,
        environment=describe_environment("cpu"),
        started="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        diagnose=True,
        repeatable=True,
        gradient_lengths=None,
    )
    tally = policy.count(sides(seed), test, goal)
    audited = Audited(subject=subject, policy=policy, goal=goal, test=test, tally=tally, theory=SCORE.curve)
    return dataclasses.replace(derive(audited), suite=suite)


def explained(record):
    """A violation with its diagnoses, as `explain` adds them where there is nothing to measure."""
    if record.verdict != "violation":
        return record
    return dataclasses.replace(record, diagnoses=(not_asked("the simulator gives one number."), direction(record)))


def suite_of_policies(names=None):
    """A suite's records: every policy, `run --like`, a claim that holds, and too few trials."""
    rectangles = POLICIES["from_theory"](method="rectangle")
    audits = {
        "from theory": {"policy": POLICIES["from_theory"]()},
        "rectangles": {"policy": rectangles},
        "split": {"policy": POLICIES["split"](fit_trials=200)},
        "fixed": {"policy": POLICIES["fixed"](thresholds=(0.0, 1.0))},
        "anytime": {"policy": POLICIES["anytime"]()},
        "like": {"policy": test_of(made("before", rectangles), where="here"), "seed": 20},
        "right": {"policy": POLICIES["from_theory"](), "claim": RIGHT, "trials": 1000, "seed": 40},
        "few": {"policy": rectangles, "trials": 80, "seed": 34},
    }
    chosen = {name: audits[name] for name in names or audits}
    suite = SuitePart(risk=0.022 * len(chosen), audits=len(chosen), seed=3)
    records = tuple(made(name, suite=suite, **words) for name, words in chosen.items())
    return tuple(map(explained, adjust(records)))
