"""Exceptions that end a replay: whether the code, this toolkit or a library raised them, and where."""

from __future__ import annotations

from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.places import (
    NOWHERE,
    Place,
    line_of_ours,
    place_of_error,
    raised_by_us,
    refused_by_us,
    spelled,
)
from audit.diagnosis.explain.sentences import not_followed
from audit.trials.user_code_errors import empty_batch, large_seed


def broken_off(error: Exception) -> Finding:
    """Finding about an exception that ended the replay: what it was, and where it was raised."""
    if refused_by_us(error):
        return not_followed("; ".join((_first_line(error), *getattr(error, "__notes__", ()))))
    at = place_of_error(error)
    return not_followed(why_broken_off(error, at), at)


def own_error(error: Exception) -> Finding:
    """An exception that comes without a replay, too: the code's own, or else ours or a library's."""
    at = place_of_error(error)
    if at.own and raised_by_us(error):
        return not_followed(f"{_first_line(error)} (at {spelled(at)}). {large_seed(error)}".rstrip(" ."), at)
    if not at.own:
        return not_followed(_first_line(error)) if line_of_ours(error) is not None else broken_off(error)
    why = why_broken_off(error, at, what="your own code raises an error")
    return not_followed(f"{why}. {empty_batch(error) or large_seed(error)}".rstrip(" ."), at)


def why_broken_off(error: Exception, at: Place, what: str = "it could not be followed") -> str:
    """What an exception was, as a clause."""
    where = "" if at.nearest is None else f" at {spelled(at)}"
    return f"{what}{where}: {type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else "no message"


def ended(error: Exception) -> Finding:
    """Finding about an exception that ended the replay outside of all operations of the code."""
    at = place_of_error(error)
    return not_followed(why_ended(error, at if at.own else NOWHERE), Place(at.own))


def why_ended(error: Exception, at: Place, running: str = "") -> str:
    """That an operation, run in that file, is not known or too large; else that the replay itself is at fault."""
    line = line_of_ours(error)
    if line is None or line[0] == running or isinstance(error, MemoryError):
        return why_broken_off(error, at)
    told = why_broken_off(error, at, what="the replay itself failed")
    return f"{told} ({spelled(Place((line,)))}); this is a fault of the toolkit, not of your code: please report it"
