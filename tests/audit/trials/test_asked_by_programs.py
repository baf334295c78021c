"""What programs ask of a release and of a score is part of their contracts, not read off their attributes."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil

import distinguishers
import mechanisms
from distinguishers.contract import OneScore, Reads
from mechanisms.contract import StructuredRelease

ROOMS = ("mechanisms.simulators", "distinguishers")


def own_classes():
    for room in ROOMS:
        package = importlib.import_module(room)
        for found in pkgutil.walk_packages(package.__path__, f"{room}."):
            module = importlib.import_module(found.name)
            yield from (
                thing for thing in vars(module).values() if inspect.isclass(thing) and thing.__module__ == found.name
            )


def takes(cls: type) -> list[str]:
    return (
        [name for name in inspect.signature(cls.__call__).parameters if name != "self"]
        if "__call__" in vars(cls)
        else []
    )


def test_every_release_and_every_score_of_ours_answers_what_programs_ask():
    classes = [cls for cls in own_classes() if dataclasses.is_dataclass(cls)]
    releases = [cls for cls in classes if takes(cls) == ["key"]]
    scores = [cls for cls in classes if takes(cls) == ["key", "output"]]
    assert len(releases) >= 7
    assert len(scores) >= 12
    assert [cls.__name__ for cls in releases if StructuredRelease not in cls.__mro__] == []
    assert [cls.__name__ for cls in scores if Reads not in cls.__mro__] == []


def test_a_score_that_says_nothing_may_read_all():
    assert (OneScore.span.fget(None), OneScore.length.fget(None), OneScore.round_length.fget(None)) == (None,) * 3
    pair = mechanisms.worst_case_pair(records=2, dimension=7, clip=1.0)
    whole = distinguishers.battery(pair)
    assert (whole.length, whole.span, whole.round_length) == (7, None, None)
    step = mechanisms.one_round(normalise_by="none", rate=0.5, clip=1.0, noise_multiplier=1.0)
    assert (distinguishers.likelihood_ratio(step, pair).span, distinguishers.likelihood_ratio(step, pair).length) == (
        1,
        7,
    )
    assert step.gradients_told is None
    assert mechanisms.mechanism(lambda key, data: data.sum(0)).gradients_told is False
