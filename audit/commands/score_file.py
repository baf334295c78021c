"""Reading scores from a file: .npy, .npz, or text in columns, with or without a header."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from audit.record.files import FileError, file_error, read_text

HOW = "write scores with numpy.save('scores.npy', scores), or as a column of a .csv file"

TABLES = (".csv", ".tsv", ".txt")
REPAIR = "a number should be; repair that trial, do not drop it."
EVERY = "all"
SIDE = "says which side a row is of"
SHOWN = 8
"""Most column names that a message lists."""


def load_scores(name: str) -> np.ndarray:
    """The scores of a file; FILE:COLUMN names an array of a .npz file or a column of a table.

    FILE:COLUMN:LABEL=VALUE takes the rows of a table whose column LABEL is that value. FILE:all takes every column but
    LABEL: each row is an output.
    """
    path, column, label = _parts(name)
    file = Path(path)
    if not file.exists():
        raise FileError(f"{path}: no such file; {HOW}.")
    if not file.is_file():
        kind = "a folder" if file.is_dir() else "a pipe or device, which cannot be read twice"
        raise FileError(f"{path}: {kind}; save the scores as a plain file: {HOW}.")
    if file.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty; {HOW}.")
    if file.suffix in TABLES:
        return _table(path, column, label)
    if label:
        raise ValueError(f"{path}: only rows of a table have labels, got {label!r}; {HOW}.")
    found = _arrays(path, column)
    if found.dtype.kind == "f" and found.ndim and np.isnan(found).any():
        row = int(np.isnan(found.reshape(len(found), -1)).any(axis=1).argmax())
        raise ValueError(f"{path}: row {row}, counted from 0, has nan where {REPAIR}")
    return found


def _parts(name: str) -> tuple[str, str, str]:
    """File, column and label=value, as far as they are given."""
    if os.path.exists(name):
        return name, "", ""
    path, _, last = name.rpartition(":")
    if not path:
        return name, "", ""
    if "=" not in last or os.path.exists(path):
        return path, "" if "=" in last else last, last if "=" in last else ""
    path, _, column = path.rpartition(":")
    return path, column, last


def _arrays(path: str, column: str) -> np.ndarray:
    try:
        with open(path, "rb") as file:
            found = np.load(file, allow_pickle=False)
            if isinstance(found, np.ndarray):
                if column:
                    raise ValueError("it holds one array, and no name is needed")
                return found
            names = list(found.files)
            if not column and len(names) != 1:
                raise ValueError(f"it holds the arrays {names}; say which: {path}:{(names or ['NAME'])[0]}")
            if column and column not in names:
                raise ValueError(f"it holds no array {column!r} but {names}")
            return found[column or names[0]]
    except OSError as error:
        raise file_error(path, "read", error) from None
    except Exception as error:
        # numpy and zipfile raise many kinds for files that are not what their name says
        # and NumPy's advice to load a pickle would run what the file says
        why = "it does not hold a plain array of numbers" if "pickle" in str(error) else error
        raise ValueError(f"{path}: not a .npy or .npz file of numbers ({why}); {HOW}.") from None


def _table(path: str, column: str, label: str) -> np.ndarray:
    try:
        text = read_text(path)
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a text file in UTF-8; {HOW}.") from None
    try:
        dialect = csv.Sniffer().sniff(text[:4096], delimiters=",;\t ")
    except csv.Error:
        dialect = csv.excel
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), dialect) if any(row)]
    except csv.Error as error:
        raise ValueError(f"{path}: not a table ({error}); {HOW}.") from None
    if not rows:
        raise ValueError(f"{path}: the table is empty; {HOW}.")
    header = rows[0] if not all(map(_is_number, rows[0])) else []
    places = _places(path, header, len(rows[0]), column, label)
    chosen = _labelled(path, header, rows, label)
    values = []
    for number, row in enumerate(rows[len(header[:1]) :], 1 + len(header[:1])):
        if not chosen(row):
            continue
        cells = [row[place] if place < len(row) else "nothing" for place in places]
        if wrong := [text for text in cells if not _is_number(text) or math.isnan(float(text))]:
            raise ValueError(f"{path}: row {number} has {wrong[0]!r} where {REPAIR}")
        values.append([float(text) for text in cells])
    return np.array(values)[:, 0] if len(places) == 1 else np.array(values)


def _labelled(path: str, header: list[str], rows: list[list[str]], label: str) -> Callable[[list[str]], bool]:
    """Which rows are wanted: all, or those with a value in a column."""
    if not label:
        return lambda row: True
    name, _, value = label.partition("=")
    place = _place(path, header, len(rows[0]), name, holds=SIDE)

    def chosen(row: list[str]) -> bool:
        cell = row[place] if place < len(row) else ""
        return cell == value or (_is_number(cell) and _is_number(value) and float(cell) == float(value))

    if not any(map(chosen, rows[len(header[:1]) :])):
        found = sorted({row[place] for row in rows[len(header[:1]) :] if place < len(row)})
        values = ", ".join(found[:SHOWN])
        raise ValueError(f"{path}: no row has {name} = {value!r}, its only values are: {values}; choose one of them.")
    return chosen


def _places(path: str, header: list[str], width: int, column: str, label: str) -> list[int]:
    """Indices of the columns to read: the named one or, for outputs, all but the label's."""
    if column != EVERY or EVERY in header:
        return [_place(path, header, width, column)]
    name = label.partition("=")[0]
    of_label = _place(path, header, width, name, holds=SIDE) if label else None
    return [place for place in range(width) if place != of_label]


def _place(path: str, header: list[str], width: int, column: str, *, holds: str = "") -> int:
    """Index of the column that holds the scores, or ``holds``."""
    if column in header:
        return header.index(column)
    if column.isdigit() and int(column) < width:
        return int(column)
    if not column and width == 1:
        return 0
    known = header or [str(i) for i in range(width)]
    listed = f"{known[:SHOWN]} and {width - SHOWN} more" if width > SHOWN else f"{known}"
    if holds:
        raise ValueError(f"{path}: no column {column!r} in {listed}; name the one that {holds}.")
    # a first column often numbers the trials, which is no score
    guess = next((name for name in known if "score" in name.lower()), "COLUMN")
    raise ValueError(
        f"{path}: {'no column ' + repr(column) if column else 'several columns'} in {listed}; say which holds the "
        f"scores: {path}:{guess}, or {path}:{EVERY} if each row is an output and nothing else."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def swapped(without: np.ndarray, with_record: np.ndarray) -> str | None:
    """A warning if scores are clearly higher without the record than with it."""
    zero, one = np.sort(np.ravel(without)), np.ravel(with_record)
    if min(len(zero), len(one)) < 2:
        return None
    lower, upper = np.searchsorted(zero, one, "left"), np.searchsorted(zero, one, "right")
    area = float((lower + upper).mean() / (2 * len(zero)))
    spread = np.sqrt((len(zero) + len(one) + 1) / (12.0 * len(zero) * len(one)))
    if area > 0.5 - 5 * spread:
        return None
    return (
        f"scores are higher without the record than with it (AUROC {area:.3f}): swapped? A larger score must mean that "
        "the record was there; exchange --without and --with if they were mixed up."
    )
