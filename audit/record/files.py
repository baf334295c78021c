"""Files in and out: any path, one sentence where one cannot be read or written, nothing half written."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from dpsgd_audit.spelling import did_you_mean

WAITING = ".dpsgd-audit-"
"""How the names of files begin that are not yet whole."""


class FileError(OSError):
    """A file that cannot be read or written: the message says which, why and what to do."""


REMEDIES = {
    errno.ENOENT: "check the path",
    errno.EISDIR: "name a file in it",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EACCES: "choose a place that you may write to, or change its permissions",
    errno.EPERM: "choose a place that you may write to, or change its permissions",
    errno.EROFS: "choose a place on a disk that can be written to",
    errno.ENOSPC: "make room and run the same command again",
    errno.EDQUOT: "make room and run the same command again",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "remove the link",
}


def told(path: str | os.PathLike[str], deed: str, error: OSError) -> FileError:
    """The sentence for a failed system call."""
    why = error.strerror or str(error)
    why = why[:1].lower() + why[1:]
    remedy = REMEDIES.get(error.errno or 0, "choose another path")
    folder, name = os.path.split(os.path.abspath(path))
    meant = did_you_mean(name, os.listdir(folder)) if deed == "read" and os.path.isdir(folder) else ""
    return FileError(f"{os.fspath(path)}: cannot be {deed} ({why}); {remedy}{meant}.")


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a plain file. A pipe, which may never end, is refused."""
    file = Path(path)
    try:
        if file.exists() and not file.is_file() and not file.is_dir():
            raise FileError(f"{file}: not a plain file; save it first.")
        return file.read_text(encoding="utf-8")
    except FileError:
        raise
    except OSError as error:
        raise told(path, "read", error) from None


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file that takes the place of ``path`` when the block ends.

    An interruption or a full disk leaves the old one. The new one's name cannot be guessed and it is made here: a link
    that somebody left in a shared folder is never written through.
    """
    file = Path(path)
    waiting = file.with_name(f"{WAITING}{secrets.token_hex(8)}.part")
    try:
        os.close(os.open(waiting, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield waiting
        waiting.replace(file)
    except OSError as error:
        raise told(path, "written", error) from None
    finally:
        with contextlib.suppress(OSError):
            waiting.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a file in one step."""
    with replacing(path) as waiting:
        waiting.write_text(text, encoding="utf-8")


def clear_waiting(folder: Path) -> None:
    """Remove what processes that were killed left half written."""
    for half in folder.glob(f"{WAITING}*.part"):
        half.unlink(missing_ok=True)


def require_apart(written: Mapping[str, str | os.PathLike[str]], kept: Mapping[str, str | os.PathLike[str]]) -> None:
    """Refuse to write a file over another one that is ``written`` or that is to be ``kept``; keys say what each is."""
    named = list(written.items())
    for index, (what, path) in enumerate(named):
        for other, taken in (*kept.items(), *named[:index]):
            if _same(Path(path), Path(taken)):
                raise FileError(f"{what} {os.fspath(path)} would overwrite {other}; choose another file.")


def _same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.name == other.name and one.parent.resolve() == other.parent.resolve()


def require_writable(path: str | os.PathLike[str]) -> None:
    """Refuse, before hours of work, a file that could not be written: no folder, a folder there, no permission."""
    file = Path(path)
    if file.is_dir():
        raise told(path, "written", OSError(errno.EISDIR, os.strerror(errno.EISDIR)))
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            pass
        if file.exists():
            with open(file, "ab"):
                pass
    except OSError as error:
        raise told(path, "written", error) from None


def make_folder(path: str | os.PathLike[str]) -> Path:
    """A folder that exists and can be written to."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise told(path, "made a folder", error) from None
    require_writable(folder / ".dpsgd-audit")
    return folder
