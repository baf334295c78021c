"""Whoever calls a public name wrongly is told which parameter it was, what was given and what is allowed."""

from __future__ import annotations

import inspect
import itertools
import math
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import jax
import numpy as np
import pytest

import audit
import audit.diagnosis
import distinguishers
import guarantees
import mechanisms
from guarantees import checks, summary, trade_off
from mechanisms.pairs import gradient_pairs

FACES = (
    *(guarantees, guarantees.shuffling, guarantees.normalised, mechanisms, mechanisms.canaries),
    *(distinguishers, audit, audit.bounds),
)
OFF_THE_FACE = (
    *((summary, name) for name in ("dominance", "mu_star", "regret", "summarise")),
    (trade_off, "compose"),
    (audit.diagnosis, "diagnose_mechanism"),
    (gradient_pairs, "orthogonal_pair"),
)
ARRAY = np.array([[1.0, 2.0]])
EVERYWHERE = ("x", [], ARRAY, True)
WRONG: dict[Any, tuple[Any, ...]] = {
    float: (None, *EVERYWHERE, math.nan, "1.0"),
    int: (None, *EVERYWHERE, math.nan, 0.5, math.inf),
    bool: (None, "x", [], ARRAY, 2),
    str: (None, 3, [], ARRAY),
    Literal: (None, *EVERYWHERE, 3),
    Callable: (None, "x", [], 3),
    tuple: (None, "x", 3, math.nan),
    type: (None, *EVERYWHERE, 3),
}
"""For each kind of type, what is none of its values."""
BOUNDARY = (-1, 0, math.inf, -math.inf)
"""May be in a number's range or not; where it is not, the message says so."""
RESULTS = {
    *("AuditRecord", "GradientCanaries"),
    *("BerryEsseenBound", "Bracket"),
}
"""What our own functions make, and nobody else."""
BETTER = {"one_round", "jax_training", "fit"}
"""Have words of their own, which say what was probably meant; not all of their parameters are named yet."""
CLAIM = guarantees.gaussian(mu=1.0)
STEP = mechanisms.gaussian_mechanism(noise_multiplier=1.0)
PAIR = mechanisms.scalar_pair()
VALID: dict[str, Any] = {
    "alpha_range": (0.0, 1.0),
    "claim": CLAIM,
    "command": ("true",),
    "counts": audit.ErrorCounts(false_alarms=1, trials_without=10, misses=1, trials_with=10),
    "curve": CLAIM.curve,
    "dataset": np.zeros((3, 2)),
    "delta": 0.01,
    "direction": np.array([1.0, 0.0]),
    "distinguisher": None,
    "epsilons": (1.0,),
    "extra": 1.0,
    "folder": ".",
    "function": len,
    "given": len,
    "noise_multiplier": 2.0,
    "gradients": np.zeros((2, 2)),
    "guesses": None,
    "history": ((1.0, 0.5, 10),),
    "included": np.array([0, 1]),
    "index": 0,
    "init": len,
    "key": jax.random.key(0),
    "mechanism": STEP,
    "neighbours": PAIR,
    "orders": (2.0,),
    "parts": ((CLAIM.curve, 1),),
    "parameters": {},
    "path": "x.json",
    "points": ((1.0, 0.01),),
    "policy": None,
    "records": 3,
    "risk": 0.05,
    "rng": np.random.default_rng(0),
    "rounds": 4,
    "scores": np.array([0.5, 1.0]),
    "step": STEP,
    "steps": 2,
    "strategy": (1.0,),
    "trials": 100,
    "update": len,
    "thresholds": (0.5,),
    "with_record": np.array([1.0, 0.0]),
    "without": np.array([0.0, 1.0]),
    "x": np.array([0.0]),
}
RUNS = {
    "plan",
    "run_audit",
    "run_suite",
    "diagnose_mechanism",
    "noise_tails",
    "dask_executor",
    "write_report",
    "image_pair",
}
"""Would run an audit, start processes or read files where a boundary value is allowed."""


def public() -> Iterator[tuple[Any, str]]:
    seen = set()
    offered = ((face, name) for face in FACES for name in dir(face))
    for package, name in (*offered, *OFF_THE_FACE):
        thing = getattr(package, name)
        called = inspect.isfunction(thing) or (inspect.isclass(thing) and not issubclass(thing, tuple | Exception))
        ours = called and thing.__module__.startswith(package.__name__.partition(".")[0])
        named = not name.startswith("_") and name not in RESULTS | BETTER
        if ours and named and not getattr(thing, "_is_protocol", False) and thing not in seen:
            seen.add(thing)
            yield package, name


def type_of(thing: Any, parameter: inspect.Parameter) -> Any:
    """The type as an object; None where it is known to an editor alone."""
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    try:
        return eval(parameter.annotation, vars(sys.modules[thing.__module__]))
    except (NameError, AttributeError):
        return None


def kinds(given: Any) -> set[Any]:
    """The kinds of a type; Any among them where its values cannot be told from others."""
    origin = get_origin(given)
    if given in (float, int, bool, str, Any):
        return {given}
    if given is type(None):
        return {None}
    if checks.IN_BODY in get_args(given):
        return {Any}
    if origin is Annotated:
        return kinds(get_args(given)[0])
    if origin in (Union, types.UnionType):
        return set().union(*map(kinds, get_args(given)))
    if origin is Literal:
        return {Literal}
    if origin in (tuple, Sequence):
        return {tuple}
    if origin is Callable or given is Callable:
        return {Callable}
    if (
        inspect.isclass(given)
        and not getattr(given, "_is_protocol", False)
        and given not in (object, np.ndarray, Path, jax.Array)
    ):
        return {type}
    return {Any}


def wrong_values(given: Any) -> list[Any]:
    """None of these is a value of the type, whichever part of it one takes."""
    of_each = [WRONG.get(kind, ()) if kind is not None else EVERYWHERE for kind in kinds(given)]
    allowed = kinds(given)
    if Any in allowed:
        return []
    found = []
    for value in itertools.chain(*of_each):
        fits = (value is None and None in allowed) or any(
            kind is not None and not any(value is other for other in WRONG.get(kind, (value,))) for kind in allowed
        )
        if not fits and not any(value is other for other in found):
            found.append(value)
    return found


def valid_call(thing: Any) -> dict[str, Any]:
    """A value for each parameter that has no default."""
    needed = [own for own in inspect.signature(thing).parameters.values() if own.default is own.empty]
    return {own.name: valid(thing, own) for own in needed if own.kind is not own.VAR_KEYWORD}


def valid(thing: Any, parameter: inspect.Parameter) -> Any:
    if parameter.name in VALID:
        return VALID[parameter.name]
    given = type_of(thing, parameter)
    if get_origin(given) is Literal:
        return get_args(given)[0]
    return next((value for kind, value in ((int, 2), (float, 0.5), (str, "x")) if kind in kinds(given)), None)


def call(thing: Any, given: dict[str, Any]) -> str | None:
    """What a call says, None where it says nothing."""
    order = [own.name for own in inspect.signature(thing).parameters.values() if own.kind is own.POSITIONAL_ONLY]
    try:
        thing(*[given[name] for name in order], **{name: value for name, value in given.items() if name not in order})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def faults(thing: Any, name: str) -> Iterator[tuple[str, Any, str | None]]:
    """Wrong values that are accepted, or refused in words that do not name the parameter and the value."""
    fine = valid_call(thing)
    right = name not in RUNS and call(thing, fine) is None
    for own in inspect.signature(thing).parameters.values():
        kind = type_of(thing, own)
        if own.kind is own.VAR_KEYWORD:
            continue
        for value in wrong_values(kind):
            said = call(thing, {own.name: value} | {key: fine[key] for key in fine if key != own.name})
            if said is None or own.name not in said or checks.shown(value) not in said:
                yield own.name, value, said
        if right and kinds(kind) & {int, float}:
            for value in BOUNDARY:
                said = call(thing, fine | {own.name: value})
                if said is not None and own.name not in said:
                    yield own.name, value, said


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("package", "name"), list(public()), ids=lambda part: getattr(part, "__name__", part))
def test_a_wrong_argument_is_named_with_its_value(package, name):
    assert list(faults(getattr(package, name), name)) == []


METHODS = {
    "beta": "alpha",
    "breakpoints": "points",
    "compose": "times",
    "compose_with": "others",
    "delta": "epsilon",
    "dominance": "other",
    "epsilon": "delta",
    "epsilon_range": "delta",
    "errors": "threshold",
    "llr_threshold": "alpha",
    "mu_star": "alpha_range",
    "regret": "other",
}
NO_NUMBERS = ("x", math.nan, True, ["a"], [[1.0], 2.0], {})
"""Also of methods that take arrays, where None stands for no number either."""


@pytest.mark.parametrize("asked", [CLAIM, CLAIM.curve], ids=["claim", "curve"])
@pytest.mark.parametrize("method", METHODS)
def test_a_method_of_a_claim_names_what_it_cannot_take(asked, method):
    name = METHODS[method]
    for value in NO_NUMBERS if method == "regret" else (*NO_NUMBERS, None):
        with pytest.raises(ValueError, match=f"^{name} must be ") as refused:
            getattr(asked, method)(value)
        assert checks.shown(value) in str(refused.value)


@pytest.mark.parametrize("method", ["beta", "delta", "epsilon", "errors"])
def test_no_numbers_at_all_are_refused_by_name(method):
    with pytest.raises(ValueError, match=f"^{METHODS[method]} must be one number or more, got"):
        getattr(CLAIM, method)([])


@pytest.mark.parametrize("method", ["delta", "epsilon"])
def test_a_direction_is_named(method):
    with pytest.raises(ValueError, match=r"^direction must be one of"):
        getattr(CLAIM, method)(0.1, "forward")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("noise_mutliplier", "did you mean 'noise_multiplier'"),
        ("noise_mult", "did you mean 'noise_multiplier'"),
        ("cilp", "did you mean 'clip'"),
        ("sigma", "it takes given, releases, gradients, clip, noise_multiplier"),
    ],
)
def test_a_misspelt_number_of_a_mechanism_is_not_kept_as_a_remark(word, said):
    with pytest.raises(TypeError, match=f"{word!r}; {said}"):
        mechanisms.mechanism(lambda key, rows: rows, **{word: 1.0})
