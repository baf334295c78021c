"""Errors of the user's code: whatever way out it takes, what arrives here is an error of ours.

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
"""What NumPy says where code changes the records that it was given."""


SEED_REFUSED = re.compile(
    r"^(OverflowError: Python int too large to convert to C (long|int)|ValueError: Seed must be between .*"
    r"|ValueError: Overflow when unpacking long( long)?)$",
    re.MULTILINE,
)
"""What jax.random.key and numpy.random.seed say of a seed of 64 bits, and torch.manual_seed of one of more."""
TAKE_LESS = (
    "if this is the trial's seed, or made of it, that goes up to 2**64 - 1: use seed % 2**32, which no two trials of a "
    "dataset share"
)


ARRAYS = ("numpy", "torch")
"""Libraries whose arrays may have no rows; JAX's have the shapes that the program was traced with."""
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
    """An audit whose errors of the user's code show the user's lines: eleven frames of ours stood above them."""

    @functools.wraps(audit)
    def audited(*given: P.args, **named: P.kwargs) -> T:
        try:
            return audit(*given, **named)
        except MechanismError as error:
            if (cause := error.__cause__) is not None:
                cause = cause.with_traceback(_own_frames(cause.__traceback__))
            raise error.with_traceback(None) from cause

    return audited


def _own_frames(raised: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames of this toolkit and of libraries."""
    if raised is None:
        return None
    rest = _own_frames(raised.tb_next)
    if is_library(raised.tb_frame.f_code.co_filename):
        return rest
    return types.TracebackType(rest, raised.tb_frame, raised.tb_lasti, raised.tb_lineno)


class Terminated(KeyboardInterrupt):
    """Somebody asked this process to end, as Ctrl-C does."""


def passes(error: BaseException) -> bool:
    """Whether an exception is not the user's code's own: Ctrl-C, a request to end, and inside a test pytest's outcomes.

    Outside a test nobody waits for pytest's outcomes, and ``pytest.exit(returncode=0)`` is as good as ``sys.exit(0)``.
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    outcomes = sys.modules.get("_pytest.outcomes")
    if outcomes is None or "PYTEST_CURRENT_TEST" not in os.environ:
        return False
    return isinstance(error, outcomes.OutcomeException | outcomes.Exit)


def sentence(error: BaseException) -> str:
    """An exception in one line; what is no plain refusal of a value says its kind."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    text = " ".join(str(error).split()) or "no message"
    return text if type(error) in (ValueError, TypeError) else f"{type(error).__name__}: {text}"


def raised_at(error: BaseException) -> str:
    """The last line of the user's own code that an exception passed through; empty if there is none in a file."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.isfile(frame.filename) and not is_library(frame.filename)
    ]
    return f" at {relative(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def own_traceback(error: BaseException) -> str:
    """The traceback from the user's first line on, without this toolkit's frames; where none is left, the error."""
    told = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in told.stack if not is_ours(frame.filename)]
    own = next((index for index, frame in enumerate(frames) if not is_library(frame.filename)), len(frames))
    left = traceback.StackSummary.from_list(frames[own:])
    if isinstance(error, SystemExit):
        # a last line 'SystemExit: 0' would read as if all were well
        heading = "Traceback (most recent call last):\n" if left else ""
        return f"{heading}{''.join(left.format())}{sentence(error)}\n"
    if not left:
        return _unqualified("".join(told.format_exception_only()))
    told.stack = left
    said = "".join(told.format(chain=False))
    said = SEED_REFUSED.sub(rf"\g<0>; {TAKE_LESS}", said)
    return READ_ONLY.sub(r"\g<0>: all trials get the same records, so work on a copy", said)


def large_seed(error: BaseException) -> str:
    """What to do about a seed that a library refused; nothing of other errors."""
    refused = SEED_REFUSED.search(f"{type(error).__name__}: {error}")
    return f"{TAKE_LESS[0].upper()}{TAKE_LESS[1:]}" if refused else ""


def empty_batch(error: BaseException) -> str:
    """Which array of the user's own code has no rows, in the frames that an exception passed through; else nothing."""
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
    """The last line of a message with a traceback in it, and the line of code that the traceback ends with."""
    lines = text.strip().splitlines()
    places = re.findall(r'^\s*File "([^"]+)", line (\d+)', text, re.MULTILINE)
    own = [f"{relative(path)}:{line}" for path, line in places if not is_library(path)]
    of_program = [line for line in map(_unqualified, lines) if line.startswith("CommandError: ")]
    # what an exception says may have several lines
    said = [] if of_program else re.split(r'\n +File ".*(?:\n .*)*\n', text.strip())[1:]
    last = _unqualified(said[-1].splitlines()[0] if said else lines[-1]).rstrip(".")
    if of_program and of_program[-1].rstrip(".") != last and not re.match(r"\w*(Error|Exception)\b", last):
        # what a program said last need not be why it failed
        return f"{of_program[-1].partition('. Its standard error: ')[0]}. Its standard error ends with: {last}"
    return f"{last} (at {own[-1]})" if own else last


def _unqualified(text: str) -> str:
    """An exception by its name, without its module."""
    return re.sub(r"^(\w+\.)+(?=\w+: )", "", text)


@contextlib.contextmanager
def blamed(what: str) -> Iterator[None]:
    """Any exception of a user's code as one that says whose it was."""
    try:
        yield
    except BaseException as error:
        if passes(error):
            raise
        own = str(error).partition("\nThe error occurred while tracing ")[0]  # at lines of ours
        told = sentence(error) if isinstance(error, SystemExit) else f"{type(error).__name__}: {own}"
        raise MechanismError(f"{what}{raised_at(error)}: {told}") from error


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """Exceptions leave this block as they are, and every other way out of a user's code becomes one.

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
