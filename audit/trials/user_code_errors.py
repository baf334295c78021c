"""Errors of the user's code: however it stops, an error of ours arrives here.

A step that calls ``sys.exit(0)`` must not end a run with exit code 0 and no report.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from audit.trials.library_files import is_library, is_ours, relative

P = ParamSpec("P")
T = TypeVar("T")

READ_ONLY = re.compile(r"(?<=^ValueError: )(output array|assignment destination) is read-only$", re.MULTILINE)
"""NumPy's message where code changes the records that it was given."""


SEED_REFUSED = re.compile(
    r"^(OverflowError: Python int too large to convert to C (long|int)|ValueError: Seed must be between .*"
    r"|ValueError: Overflow when unpacking long( long)?)$",
    re.MULTILINE,
)
"""Messages of jax.random.key and numpy.random.seed about seeds of 64 bits, and of torch.manual_seed about longer
ones."""
TAKE_LESS = (
    "if this is the trial's seed, or made of it, that goes up to 2**64 - 1: use seed % 2**32, which no two trials of a "
    "dataset share"
)


ARRAYS = ("numpy", "torch")
"""Libraries whose arrays may have no rows; those of JAX have the shapes that the program was traced with."""
NO_ROWS = (
    "In this trial `{name}` has no rows: a batch that is drawn at random can be empty. Leave out its gradients then, "
    "but still add the noise and take the step."
)


class MechanismError(RuntimeError):
    """User code failed while it was audited.

    The message says what failed and on which dataset; ``__cause__`` is the user's own exception. A ``sys.exit`` of the
    code under audit arrives as one, too; Ctrl-C does not.

    Examples:
      >>> import audit, guarantees, jax, mechanisms
      >>> def step(key, gradients):
      ...     raise RuntimeError("no GPU")
      >>> given = dict(claim=guarantees.gaussian(mu=1.0), trials=100, risk=0.05, key=jax.random.key(0))
      >>> try:
      ...     audit.run_audit(step, mechanisms.scalar_pair(), **given)
      ... except audit.MechanismError as error:
      ...     print(error)
      'step' failed on the side 'without': RuntimeError: no GPU
    """


def without_our_frames(audit: Callable[P, T]) -> Callable[P, T]:
    """Decorate an audit so that tracebacks of errors in the user's code show only the user's lines."""

    @functools.wraps(audit)
    def audited(*given: P.args, **named: P.kwargs) -> T:
        try:
            return audit(*given, **named)
        except MechanismError as error:
            if (cause := error.__cause__) is not None:
                cause = cause.with_traceback(_user_frames(cause.__traceback__))
            raise error.with_traceback(None) from cause

    return audited


def _user_frames(raised: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames of this toolkit and of libraries."""
    if raised is None:
        return None
    rest = _user_frames(raised.tb_next)
    if is_library(raised.tb_frame.f_code.co_filename):
        return rest
    return types.TracebackType(rest, raised.tb_frame, raised.tb_lasti, raised.tb_lineno)


class Terminated(KeyboardInterrupt):
    """This process was asked to end, as by Ctrl-C."""


def passes(error: BaseException) -> bool:
    """Whether an exception is not from the user's code: Ctrl-C, a request to end and, inside a test, pytest's outcomes.

    Outside a test nobody handles pytest's outcomes, and ``pytest.exit(returncode=0)`` is as bad as ``sys.exit(0)``.
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    outcomes = sys.modules.get("_pytest.outcomes")
    if outcomes is None or "PYTEST_CURRENT_TEST" not in os.environ:
        return False
    return isinstance(error, outcomes.OutcomeException | outcomes.Exit)


def sentence(error: BaseException) -> str:
    """An exception in one line, with its type unless it plainly refuses a value."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    text = " ".join(str(error).split()) or "no message"
    return text if type(error) in (ValueError, TypeError) else f"{type(error).__name__}: {text}"


def raised_at(error: BaseException) -> str:
    """The last line of the user's code that an exception passed through; "" if there is none in a file."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.isfile(frame.filename) and not is_library(frame.filename)
    ]
    return f" at {relative(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def own_traceback(error: BaseException) -> str:
    """The traceback from the user's first line on, without this toolkit's frames; if none is left, the error alone."""
    formatted = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in formatted.stack if not is_ours(frame.filename)]
    first_own = next((index for index, frame in enumerate(frames) if not is_library(frame.filename)), len(frames))
    kept = traceback.StackSummary.from_list(frames[first_own:])
    if isinstance(error, SystemExit):
        # a last line 'SystemExit: 0' would read as if all were well
        heading = "Traceback (most recent call last):\n" if kept else ""
        return f"{heading}{''.join(kept.format())}{sentence(error)}\n"
    if not kept:
        return _unqualified("".join(formatted.format_exception_only()))
    formatted.stack = kept
    text = "".join(formatted.format(chain=False))
    text = SEED_REFUSED.sub(rf"\g<0>; {TAKE_LESS}", text)
    return READ_ONLY.sub(r"\g<0>: all trials get the same records, so work on a copy", text)


def large_seed(error: BaseException) -> str:
    """Advice about a seed that a library refused; "" for other errors."""
    refused = SEED_REFUSED.search(f"{type(error).__name__}: {error}")
    return f"{TAKE_LESS[0].upper()}{TAKE_LESS[1:]}" if refused else ""


def empty_batch(error: BaseException) -> str:
    """Name an array of the user's code without rows in the frames that an exception passed; "" if none."""
    if not isinstance(error, ArithmeticError | IndexError | RuntimeError | TypeError | ValueError):
        return ""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if not is_library(frame.f_code.co_filename)]
    for frame in reversed(frames):
        for name, value in frame.f_locals.items():
            of_library = type(value).__module__.partition(".")[0] in ARRAYS
            if of_library and tuple(getattr(value, "shape", ()))[:1] == (0,):
                return NO_ROWS.format(name=name)
    return ""


def last_words(text: str) -> str:
    """The last line of a message that contains a traceback, and the line of code that the traceback ends with."""
    lines = text.strip().splitlines()
    places = re.findall(r'^\s*File "([^"]+)", line (\d+)', text, re.MULTILINE)
    user_places = [f"{relative(path)}:{line}" for path, line in places if not is_library(path)]
    program_errors = [line for line in map(_unqualified, lines) if line.startswith("CommandError: ")]
    # what an exception says may have several lines
    messages = [] if program_errors else re.split(r'\n +File ".*(?:\n .*)*\n', text.strip())[1:]
    last = _unqualified(messages[-1].splitlines()[0] if messages else lines[-1]).rstrip(".")
    if program_errors and program_errors[-1].rstrip(".") != last and not re.match(r"\w*(Error|Exception)\b", last):
        # the last line of its standard error need not say why a program failed
        return f"{program_errors[-1].partition('. Its standard error: ')[0]}. Its standard error ends with: {last}"
    return f"{last} (at {user_places[-1]})" if user_places else last


def _unqualified(text: str) -> str:
    """An exception's name without its module."""
    return re.sub(r"^(\w+\.)+(?=\w+: )", "", text)


@contextlib.contextmanager
def blamed(what: str) -> Iterator[None]:
    """Turn any exception inside this block into one that blames the user's code for it."""
    try:
        yield
    except BaseException as error:
        if passes(error):
            raise
        message = str(error).partition("\nThe error occurred while tracing ")[0]  # at lines of ours
        reason = sentence(error) if isinstance(error, SystemExit) else f"{type(error).__name__}: {message}"
        raise MechanismError(f"{what}{raised_at(error)}: {reason}") from error


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """Let exceptions leave this block as they are, and turn any other exit of a user's code into one.

    For the outside of whatever runs user code somewhere inside; it can also decorate a function.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if passes(error):
            raise
        raise MechanismError(f"code under audit tried to end the process: {sentence(error)}") from error
