"""Keep records in files, written in one step, and read them back with a message that names what is wrong and where."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audit.one_run.result import OneRun
from audit.record.checks import check
from audit.record.files import read_text, write_whole
from audit.record.of_one_run import as_records
from audit.record.read import SchemaError, read
from audit.record.record import SCHEMA, AuditRecord
from audit.verdict.score_bounds import ScoreBounds
from guarantees.checks import checked

WRITTEN_BY = "records are written by `dpsgd-audit run` and by `dpsgd-audit bound --out`"


def from_json(data: Mapping[str, Any]) -> AuditRecord:
    """Read a record; one of another schema is refused, never guessed at."""
    schema = data.get("schema")
    if not _readable(schema):
        raise SchemaError(
            f"this record has schema version {schema!r}, and this dpsgd-audit reads version {SCHEMA}; read it with the "
            "version of dpsgd-audit named in its environment, or run the audit again."
        )
    record = read(AuditRecord, data)
    check(record)
    return record


def _readable(schema: Any) -> bool:
    """Whether this version reads a schema."""
    return not isinstance(schema, bool) and schema == SCHEMA


@checked
def save_records(
    records: tuple[AuditRecord | OneRun | ScoreBounds, ...], path: str | os.PathLike[str], *, title: str | None = None
) -> None:
    """Write records to a JSON file in one step: an interruption leaves the old file or the new one.

    The file is not signed: who receives it recomputes its numbers with ``dpsgd-audit verify``.

    Args:
      records: what to write; results of ``from_scores``, ``one_run`` and ``one_training`` among them, if they judged
        a claim.
      path: the file; it is replaced, and its folder made where there is none.
      title: what reports of the file are called, unless they are given another one.

    Raises:
      ValueError: a result judged no claim.
      OSError: the file cannot be written.

    Examples:
      >>> import audit, pathlib, tempfile
      >>> file = pathlib.Path(tempfile.mkdtemp()) / "records.json"
      >>> audit.save_records((), file)
      >>> audit.load_records(file)
      ()
    """
    named = {} if title is None else {"title": title}
    written = [record.to_json() for record in as_records(records)]
    with contextlib.suppress(OSError):  # what is in the way is told below
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps({"schema": SCHEMA, **named, "records": written}, indent=1) + "\n")


@checked
def load_records(path: str | os.PathLike[str]) -> tuple[AuditRecord, ...]:
    """Read a file of records, or of one record.

    Reading checks the form of a record, not that its numbers follow from its counts: ``dpsgd-audit verify`` does.

    Args:
      path: a file that ``save_records`` or ``dpsgd-audit run`` wrote.

    Returns:
      The records, in the order of the file.

    Raises:
      OSError: the file cannot be read.
      SchemaError: it holds something else; the message names the file, the record and the key.

    Examples:
      >>> import audit, pathlib, tempfile
      >>> file = pathlib.Path(tempfile.mkdtemp()) / "records.json"
      >>> audit.save_records((), file)
      >>> len(audit.load_records(file))
      0
    """
    data = _read_object(path)
    if "records" not in data:
        return (_placed(data, f"{path}"),)
    _check_file(data, path)
    return tuple(_placed(item, f"{path}: record {number}") for number, item in enumerate(data["records"], 1))


def stored_title(path: str | os.PathLike[str]) -> str | None:
    """Title of the suite that made a file of records, if the file has one."""
    data = _read_object(path)
    return data.get("title") if "records" in data else None


def _read_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the JSON object of a file."""
    try:
        data = json.loads(read_text(path), object_pairs_hook=_distinct_keys)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{path} is not JSON ({error}); {WRITTEN_BY}.") from None
    if not isinstance(data, dict) or not data.keys() & {"records", "schema"}:
        raise SchemaError(f"{path} holds no records; {WRITTEN_BY}.")
    return data


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object with distinct keys: readers might take either value of a repeated one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        key = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {key!r} appears twice in one object")
    return found


def _check_file(data: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Check the entries of a file beside its records."""
    unknown = [key for key in data if key not in ("schema", "title", "records")]
    if unknown:
        raise SchemaError(f"{path}: {unknown[0]!r} is not known to this version of dpsgd-audit; {WRITTEN_BY}.")
    if not _readable(data.get("schema", SCHEMA)):
        remedy = "read it with the version of dpsgd-audit that wrote it, or run the audit again"
        raise SchemaError(f"{path}: schema must be {SCHEMA}, got {data['schema']!r}; {remedy}.")
    if not isinstance(data.get("title", ""), str):
        raise SchemaError(f"{path}: title must be a string, got {data['title']!r}; {WRITTEN_BY}.")
    if not isinstance(data["records"], list):
        raise SchemaError(f"{path}: records must be a list; {WRITTEN_BY}.")


def _placed(data: Any, place: str) -> AuditRecord:
    """Read a record; a SchemaError names its place and name."""
    if not isinstance(data, dict):
        raise SchemaError(f"{place} is not an object; {WRITTEN_BY}.")
    try:
        return from_json(data)
    except SchemaError as error:
        name = data.get("name")
        named = f" ({name!r})" if isinstance(name, str) else ""
        raise SchemaError(f"{place}{named}: {str(error).rstrip('.')}; {WRITTEN_BY}.") from None
