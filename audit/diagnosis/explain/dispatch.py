"""Entry point of explanations: picks the tracer that a mechanism names."""

from __future__ import annotations

import dataclasses
import importlib
import math
import warnings
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import jax

from audit.claim_fits_pair import require_matching, require_steps
from audit.diagnosis.explain.findings import CLOSE, Explanation, Finding, Kind
from audit.diagnosis.explain.sentences import not_followed
from audit.diagnosis.explain.watched_code import is_plain
from audit.power.less_noise import CLAIMS
from audit.power.less_noise import Described as Claimed
from audit.record.environment import seen_of
from audit.trials.both_sides import both_sides, steps_taken
from audit.trials.keys import require_key
from guarantees.checks import AboveZero, checked
from guarantees.families.event_text import noise_multiplier_of
from mechanisms.contract import mechanism as as_mechanism
from mechanisms.pairs.gradient_pairs import told_pair
from mechanisms.pairs.neighbours import materialise

if TYPE_CHECKING:
    from guarantees.claim import Claim
    from mechanisms.pairs.neighbours import Neighbours

TRACERS: dict[str, str] = {"jax": "audit.diagnosis.explain.jaxprs", "torch": "audit.diagnosis.explain.torch_code"}
"""The module that follows each kind of code (``Described.tracer``); its function ``follow`` is a Tracer."""
UNTOLD = "explain does not recognise the distribution of this noise, so its deviation is not known"
GRADIENTS = "gradients= (where a record is not its own gradient)"
TELL_GRADIENTS = {"loss", "gradients"}
"""Parameters of the user's code that tell its gradients."""
CLAIM_ALONE = (
    "The mechanism states a noise multiplier of {own:.4g} and the code keeps it; only the claim assumes {claimed:.4g}. "
    "Look where the claim is made, such as at the accounting."
)
RISK = 1e-4
"""Probability at most of saying of batches with the claim's rate that they always hold the record."""
MOST_RUNS = 40
"""Most runs made to see whether every batch holds the record."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Stated:
    """What is stated about the code, as far as it is known."""

    clip: AboveZero | None = None
    noise_multiplier: AboveZero | None = None
    reach: AboveZero = 1.0
    """Clipping norms by which the pair may move a sum: 2 where a record is exchanged."""
    of_the_pair: bool = False
    """Whether the multiplier is already over what the pair moves, as mu says it, and not over one clipping norm."""

    rate: AboveZero | None = None
    """Probability that a Poisson batch holds a record, if the claim states it."""
    steps: int = 1
    """Number of Poisson batches that the claim counts."""
    mu_of_all: AboveZero | None = None
    """What all rounds together may cost, if the claim is a mu."""
    epsilon: AboveZero | None = None
    """What Laplace noise on one number may cost, if the claim states it."""
    of_answers: float | None = None
    """The claim's epsilon at a delta of 0.0001."""
    claimed: bool = False
    """Whether the multiplier is the claim's alone."""
    by_mechanism: AboveZero | None = None
    """The multiplier stated with the mechanism, if the claim has another."""

    @property
    def due(self) -> float | None:
        """Smallest allowed ratio of the noise deviation to what the pair moves."""
        if self.noise_multiplier is None:
            return None
        return self.noise_multiplier / (1.0 if self.of_the_pair else self.reach)

    @property
    def runs_that_tell(self) -> int:
        """Runs in which the first batch must hold the record to show that every batch does; 0 if none are made."""
        if self.rate is None or self.rate**MOST_RUNS > RISK:
            return 0
        return math.ceil(math.log(RISK) / math.log(self.rate))


def implied_bound(stated: Stated, deviation: float | None) -> float | None:
    """How far the pair may move a sum: by the stated clipping norm, or else by as much as the noise would cover."""
    if stated.clip is not None:
        return stated.reach * stated.clip
    return None if deviation is None or not stated.due else deviation / stated.due


class Tracer(Protocol):
    """Follows one kind of code."""

    def __call__(self, mechanism: Any, neighbours: Neighbours, *, key: jax.Array, stated: Stated) -> Explanation:
        """Both sides in lockstep. What it cannot follow is said in the explanation, not raised."""
        ...


def promised(claim: Claimed) -> float | None:
    """The noise multiplier that a claim speaks of, where one is enough to say what it promises of a release."""
    own = claim.parameters
    if claim.name == "gaussian" and own.get("mu"):
        return positive(1 / own["mu"])
    if isinstance(own.get("event"), str):
        return positive(noise_multiplier_of(own["event"]))
    if claim.name == "claim_from_history":
        # with several multipliers nobody says which step has which
        multipliers = {noise for noise, _, _ in own["history"]}
        return positive(multipliers.pop()) if len(multipliers) == 1 else None
    return positive(own.get("noise_multiplier"))


def sampling_rate(claim: Claimed) -> float | None:
    """Probability with which a claim about Poisson batches puts a record into each batch."""
    own = claim.parameters
    if claim.name == "claim_from_history":
        rates = {rate for _, rate, _ in own["history"]}
        return positive(rates.pop()) if len(rates) == 1 else None
    if claim.name not in CLAIMS or own.get("sampler", "poisson") != "poisson":
        return None
    return positive(own.get("rate", own.get("sample_rate")))


def stated_by(
    claim: Claimed | None,
    told: Mapping[str, Any],
    neighbours: Neighbours,
    *,
    clip: float | None = None,
    noise_multiplier: float | None = None,
) -> Stated:
    """The numbers that are given, or else the larger of the claim's and what the mechanism was told.

    An accountant that reads a wrong multiplier from the code promises what the code does, and not what was told.
    """
    claimed = None if claim is None else promised(claim)
    of_the_pair = noise_multiplier is None and claimed is not None and claim is not None and claim.name == "gaussian"
    own = positive(told.get("noise_multiplier"))
    both = (claimed, None if of_the_pair else own)
    compared = claimed is not None and own is not None and noise_multiplier is None and not of_the_pair
    return Stated(
        clip=positive(told.get("clip")) if clip is None else clip,
        noise_multiplier=max((number for number in both if number is not None), default=None)
        if noise_multiplier is None
        else noise_multiplier,
        reach=neighbours.group * (2.0 if neighbours.relation == "substitution" else 1.0),
        of_the_pair=of_the_pair,
        rate=None if claim is None or neighbours.group > 1 else sampling_rate(claim),
        steps=1 if claim is None else claim.times * int(claim.parameters.get("steps") or 1),
        mu_of_all=None if claim is None or not of_the_pair else claim.parameters["mu"] * math.sqrt(claim.times),
        epsilon=None if claim is None or (claim.name, claim.times) != ("laplace", 1) else claim.parameters["epsilon"],
        by_mechanism=own if compared else None,
        claimed=claimed is not None and noise_multiplier is None and (of_the_pair or own is None or claimed > own),
    )


def positive(value: Any) -> float | None:
    """The value if it is a number above zero, otherwise None."""
    return float(value) if is_plain(value) and 0 < value < math.inf else None


def explain(
    mechanism: Any,
    neighbours: Neighbours,
    *,
    key: jax.Array,
    clip: float | None = None,
    noise_multiplier: float | None = None,
    claim: Claim | None = None,
) -> Explanation:
    """Which line breaks the promise: replay the mechanism on both datasets with the same random draws.

    It draws no trials and gives no verdict. Nothing found does not mean private. Not seen by a replay:

    - what happens inside callbacks and other code that the trace does not enter
    - loops whose number of steps depends on the data
    - programs that are not the same for N and N + 1 records
    - how batches are drawn, except for the faults that in_every_batch and sampled_otherwise name under a Poisson claim
    - the noise's law: its tails, its grain, the quality of its generator
    - with PyTorch also random numbers of NumPy and of Python, data that leave PyTorch and come back, noise that is
      added to single records and not clipped with them, and permutations of N and N + 1 records

    Args:
      mechanism: what ``audit.run_audit`` takes.
      neighbours: the pair of datasets.
      key: from ``jax.random.key``; the draws of the replay.
      clip: the clipping norm that the code is said to use; by default the one stated with the mechanism.
      noise_multiplier: the noise's deviation over the clipping norm, as promised; by default the larger of the
        claim's and the one stated with the mechanism.
      claim: the promise. Each release is compared with its noise multiplier, with the mu of ``gaussian`` or (one draw
        of Laplace noise in JAX) with the epsilon of ``laplace``; batches with its Poisson rate.

    Returns:
      Findings with their lines, what each release cost, and what could not be followed.

    Raises:
      TypeError: ``mechanism`` is not a mechanism, ``key`` not a key, or its ``loss=`` cannot be differentiated.
      ValueError: ``claim`` is about other neighbours or other steps, or ``gradients=`` fails, as ``audit.run_audit``
        says it.

    Examples:
      >>> import audit, jax, mechanisms
      >>> def bare(key, gradients):
      ...     return gradients.sum(axis=0)
      >>> pair = mechanisms.worst_case_pair(records=3, dimension=2, clip=1.0)
      >>> [found.kind.value for found in audit.explain(bare, pair, key=jax.random.key(0)).findings]
      ['released_without_noise']
    """
    require_key(key)
    step = as_mechanism(mechanism)
    if claim is not None:
        require_matching(step, neighbours, claim)
    if TELL_GRADIENTS & step.parameters.keys():
        # what `run` refuses is refused here as well
        told_pair(neighbours, step)
    stated = stated_by(claim, step.parameters, neighbours, clip=clip, noise_multiplier=noise_multiplier)
    if claim is not None and stated.noise_multiplier is None:
        stated = dataclasses.replace(stated, of_answers=claim.epsilon(1e-4) if neighbours.group == 1 else math.inf)
    told = replayed(step, neighbours, key=key, stated=stated)
    if claim is not None and told.rounds:
        require_steps(step, claim, steps_taken(step, neighbours, both_sides(step, neighbours, workers=0)))
    with warnings.catch_warnings():
        # told as a finding
        warnings.simplefilter("ignore")
        after = seen_of(step, materialise(neighbours.without)).get("after_step") if step.tracer == "torch" else None
    return told if after is None else dataclasses.replace(told, findings=(*told.findings, not_followed(after)))


def diagnosed(*stated: Collection[str]) -> str:
    """What `run` says of outputs whose code is not followed, and what each audit would have to state for it."""
    words = {"clip": "clip=", "noise_multiplier": "noise_multiplier=", "gradients": GRADIENTS}
    left = " and ".join(told for word, told in words.items() if any(word not in each for each in stated))
    more = f", and more of DP-SGD if you state {left}" if left else ""
    return f"`run` diagnoses its outputs{more}"


def replayed(step: Any, neighbours: Neighbours, *, key: jax.Array, stated: Stated) -> Explanation:
    """The replay of a mechanism, given what is stated about it."""
    if step.tracer not in TRACERS:
        why = (
            f"a replay follows JAX and PyTorch, not what {step.name} runs, such as NumPy. {diagnosed(step.parameters)}"
        )
        return Explanation(findings=(not_followed(why),))
    follow: Tracer = importlib.import_module(TRACERS[step.tracer]).follow
    told = follow(step, neighbours, key=key, stated=stated)
    bound = None if stated.clip is None else stated.reach * stated.clip
    told = dataclasses.replace(told, stated=stated.noise_multiplier, bound=bound)
    return blaming_the_claim(_with_unknown_noise(told), stated)


def _with_unknown_noise(told: Explanation) -> Explanation:
    """The explanation with a note if a deviation is unknown: its round is not judged."""
    known = [one.is_told(compared=told.stated is not None) for one in told.rounds]
    if all(known):
        return told
    rounds = tuple(
        dataclasses.replace(one, judged=one.judged and own) for one, own in zip(told.rounds, known, strict=True)
    )
    own = next(one for one, own in zip(rounds, known, strict=True) if not own)
    found = (Finding(kind=Kind.NOT_FOLLOWED, lines=own.lines[:1], says=not_followed(UNTOLD).says),)
    return dataclasses.replace(told, rounds=rounds, findings=told.findings or found)


def blaming_the_claim(told: Explanation, stated: Stated) -> Explanation:
    """The explanation, changed if the noise is as the mechanism states and only the claim assumes more.

    The claim's number is called claimed.
    """
    if stated.claimed:
        own_words = [one.says.replace(" is stated", " is claimed") for one in told.findings]
        findings = zip(told.findings, own_words, strict=True)
        told = dataclasses.replace(told, findings=tuple(dataclasses.replace(one, says=says) for one, says in findings))
    own, claimed = stated.by_mechanism, stated.noise_multiplier
    if own is None or claimed is None or own >= claimed or not all(one.judged for one in told.rounds):
        return told
    if any(one.multiplier < own / stated.reach * (1 - CLOSE) for one in told.rounds):
        return told
    first = CLAIM_ALONE.format(own=own, claimed=claimed)

    def told_again(one: Finding) -> Finding:
        if one.kind != Kind.TOO_LITTLE_NOISE:
            return one
        return dataclasses.replace(one, lines=(), says=f"{first} {one.says}")

    return dataclasses.replace(told, findings=tuple(map(told_again, told.findings)))
