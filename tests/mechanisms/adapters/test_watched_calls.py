"""Calls are watched, and nobody else's profiler is disturbed."""

from __future__ import annotations

import cProfile
import pstats
import sys

from mechanisms.adapters.watched_calls import calls_told_to


def called():
    return 1


def watched():
    seen = []
    with calls_told_to(lambda frame, event, _: seen.append((frame.f_code.co_name, event))):
        called()
    called()
    return seen


def test_calls_are_told_meanwhile():
    assert watched().count(("called", "call")) == 1
    assert sys.getprofile() is None


def test_a_profiler_that_is_at_work_goes_on():
    profile = cProfile.Profile()
    profile.enable()
    try:
        seen = watched()
        called()
    finally:
        profile.disable()
    calls = {name: counts[0] for (_, _, name), counts in pstats.Stats(profile).stats.items()}
    assert calls["called"] == 3
    # from Python 3.12 on a profiler is no longer alone
    assert seen == [] or sys.version_info >= (3, 12)
