"""Read and write files: any path, one sentence about a failure, and nothing half written."""

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
"""Prefix of the names of files that are not yet complete."""


class FileError(OSError):
    """A file cannot be read or written: the message says which, why and what to do."""


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
"""What to do, by error number."""


def file_error(path: str | os.PathLike[str], deed: str, error: OSError) -> FileError:
    """A FileError for a failed system call; ``deed`` is what was tried, as a participle."""
    why = error.strerror or str(error)
    why = why[:1].lower() + why[1:]
    remedy = REMEDIES.get(error.errno or 0, "choose another path")
    folder, name = os.path.split(os.path.abspath(path))
    meant = did_you_mean(name, os.listdir(folder)) if deed == "read" and os.path.isdir(folder) else ""
    return FileError(f"{os.fspath(path)}: cannot be {deed} ({why}); {remedy}{meant}.")


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a text file. A pipe, which may never end, is refused."""
    file = Path(path)
    try:
        if file.exists() and not file.is_file() and not file.is_dir():
            raise FileError(f"{file}: not a plain file; save it first.")
        return file.read_text(encoding="utf-8")
    except FileError:
        raise
    except OSError as error:
        raise file_error(path, "read", error) from None


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new file that replaces ``path`` when the block ends.

    An interruption or a full disk leaves the old one. The new file has an unpredictable name and is created here: a
    link that somebody left in a shared folder is never written through.
    """
    file = Path(path)
    waiting = file.with_name(f"{WAITING}{secrets.token_hex(8)}.part")
    try:
        os.close(os.open(waiting, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield waiting
        waiting.replace(file)
    except OSError as error:
        raise file_error(path, "written", error) from None
    finally:
        with contextlib.suppress(OSError):
            waiting.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a file in one step."""
    with replacing(path) as waiting:
        waiting.write_text(text, encoding="utf-8")


def clear_waiting(folder: Path) -> None:
    """Remove files that killed processes left half written."""
    for half in folder.glob(f"{WAITING}*.part"):
        half.unlink(missing_ok=True)


def require_apart(written: Mapping[str, str | os.PathLike[str]], kept: Mapping[str, str | os.PathLike[str]]) -> None:
    """Refuse to overwrite a file that is also ``written`` or to be ``kept``; keys say what each file is."""
    outputs = list(written.items())
    for index, (purpose, path) in enumerate(outputs):
        for other_purpose, other_path in (*kept.items(), *outputs[:index]):
            if _same(Path(path), Path(other_path)):
                raise FileError(f"{purpose} {os.fspath(path)} would overwrite {other_purpose}; choose another file.")


def _same(first: Path, second: Path) -> bool:
    """Whether two paths are one file."""
    if first.exists() and second.exists():
        return first.samefile(second)
    return first.name == second.name and first.parent.resolve() == second.parent.resolve()


def require_writable(path: str | os.PathLike[str]) -> None:
    """Refuse before hours of work a file that cannot be written: no folder, a folder there, no permission."""
    file = Path(path)
    if file.is_dir():
        raise file_error(path, "written", OSError(errno.EISDIR, os.strerror(errno.EISDIR)))
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            pass
        if file.exists():
            with open(file, "ab"):
                pass
    except OSError as error:
        raise file_error(path, "written", error) from None


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder, if it is not there, and check that it can be written to."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error(path, "made a folder", error) from None
    require_writable(folder / ".dpsgd-audit")
    return folder
