"""The command line: each command's work is in audit/commands/ and imported when it runs."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import importlib
import io
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from audit.commands.arguments import COMMANDS
from audit.trials.library_files import is_ours
from audit.trials.user_code_errors import Terminated, contained
from dpsgd_audit.spelling import did_you_mean

BAD_INPUT = 2
INTERRUPTED = 130
CUT_SHORT = 141
TERMINATED = 143
CONTINUES = "the same command continues where it stopped; with --resume, audits of callables and commands do, too."

PLAIN = {"≤": "<=", "≥": ">=", "…": "...", "·": ".", "“": '"', "”": '"', "’": "'"}
"""What stands for characters that an encoding lacks; a question mark for all others."""


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, and which word may be meant, in place of a page of usage."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A word that is not known is told by the command whose words are."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            known = re.findall(r"--[\w-]+", self.format_usage())
            meant = did_you_mean(left[0], known)
            if left[0].startswith("--risk") and "--confidence" in known:
                meant = " (--confidence says it: 1 minus the risk)"
            self.error(f"{left[0]!r} is not known here{meant}")
        return found, left

    def error(self, message: str) -> NoReturn:
        """Exit code 2."""
        said = message.removeprefix("argument ")
        if choice := re.fullmatch(r"(.*)invalid choice: '(.*)' \(choose from (.*)\)", said):
            words = re.findall(r"[\w-]+", choice[3])
            said = f"{choice[1]}there is no {choice[2]!r}{did_you_mean(choice[2], words)}, only {', '.join(words)}"
        self.exit(BAD_INPUT, f"{self.prog}: {said}; see `{self.prog} --help`.\n")


def parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    top = _Parser(prog="dpsgd-audit", description="Find out whether a DP-SGD implementation keeps its privacy promise.")
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS:
        own = commands.add_parser(command.name, help=command.help, description=command.help)
        command.options(own)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends with exit code 2 and one line that says what to do."""
    _open_streams()
    _write_plainly()
    arguments = parser().parse_args(argv)
    try:
        with contained(), _plain_warnings():
            code = _alone(arguments) if getattr(arguments, "json", False) else _execute(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # the reader has seen enough, as `| head` does
        _drop_output()
        return CUT_SHORT
    except (ValueError, TypeError, RuntimeError, OSError, ImportError, ArithmeticError, MemoryError) as error:
        from audit.report.escaping import printable

        said = str(error) or type(error).__name__
        print(f"dpsgd-audit: {printable(said)}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        return BAD_INPUT
    except Terminated:
        print(f"dpsgd-audit: terminated; {CONTINUES}", file=sys.stderr)
        return TERMINATED
    except KeyboardInterrupt:
        print(f"dpsgd-audit: interrupted; {CONTINUES}", file=sys.stderr)
        return INTERRUPTED


def _execute(arguments: argparse.Namespace) -> int:
    if arguments.version:
        from importlib import metadata

        print(metadata.version("dpsgd-audit"))
        return 0
    if arguments.command is None:
        parser().print_help()
        return BAD_INPUT
    return importlib.import_module(f"audit.commands.{arguments.command}").execute(arguments)


def _alone(arguments: argparse.Namespace) -> int:
    """Run a command whose answer is JSON, and nothing else, on standard output."""
    from audit.commands.json_output import json_alone

    with json_alone():
        return _execute(arguments)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show what we warn of as a sentence: the line of ours that Python prints with it is nobody's to mend."""
    usual = warnings.formatwarning

    def plain(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return f"warning: {message}\n" if is_ours(filename) else usual(message, category, filename, lineno, line)

    warnings.formatwarning = plain
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _drop_output() -> None:
    """Forget what standard output does not take: Python would complain once more at its own exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """Where a stream was closed (`>&-`) open nothing in its place, before a file of ours gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = os.O_RDONLY if number == 0 else os.O_WRONLY
            empty = os.open(os.devnull, mode)
            setattr(sys, name, os.fdopen(empty, "r" if number == 0 else "w"))


def _write_plainly() -> None:
    """Let a stream whose encoding lacks a character write another one instead of failing."""

    def plain(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        return "".join(PLAIN.get(each, "?") for each in error.object[error.start : error.end]), error.end

    codecs.register_error("dpsgd_audit.plain", plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="dpsgd_audit.plain")


if __name__ == "__main__":
    sys.exit(main())
