"""Turn plain data back into dataclasses, by their annotations; whatever does not fit is named by its key."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union

Kind = TypeVar("Kind")


class SchemaError(ValueError):
    """A record that this version cannot read."""


def read(kind: type[Kind], data: Any, key: str = "") -> Kind:
    """Read a value of this kind; a SchemaError names the key that holds something else."""
    return _read(kind, data, key)


def require_key(key: str, good: bool, rule: str, value: Any) -> None:
    """Refuse a value that has the right type but makes no sense."""
    if not good:
        raise SchemaError(f"{key} must be {rule}, got {_short(value)}")


def _read(kind: Any, data: Any, key: str) -> Any:
    """Read a value by its annotation."""
    origin = typing.get_origin(kind)
    if kind is Any:
        return data
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, data, key)
    if origin in (Union, types.UnionType):
        return _optional(kind, data, key)
    if origin is Literal:
        require_key(
            key, isinstance(data, str) and data in typing.get_args(kind), f"one of {typing.get_args(kind)}", data
        )
        return data
    if origin is tuple:
        return _tuple(typing.get_args(kind), data, key)
    if origin is not None and issubclass(origin, Mapping):
        require_key(key, isinstance(data, Mapping), "an object", data)
        inside = typing.get_args(kind)[1]
        return {name: _read(inside, value, _under(key, name)) for name, value in data.items()}
    return _plain(kind, data, key)


def _dataclass(kind: Any, data: Any, key: str) -> Any:
    """Read a dataclass; unknown and missing keys are refused."""
    require_key(key or "a record", isinstance(data, Mapping), "an object", data)
    hints, fields = _hints(kind), {field.name: field for field in dataclasses.fields(kind)}
    for name in data:
        if name not in fields:
            raise SchemaError(f"{_under(key, name)} is not known to this version of dpsgd-audit")
    for name, field in fields.items():
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and name not in data:
            raise SchemaError(f"{_under(key, name)} is missing")
    values = {name: _read(hints[name], value, _under(key, name)) for name, value in data.items()}
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise SchemaError(f"{key}: {error}") from None


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """Annotations of a dataclass, resolved."""
    return typing.get_type_hints(kind)


def _optional(kind: Any, data: Any, key: str) -> Any:
    """Read a value that may be None."""
    inside = [part for part in typing.get_args(kind) if part is not type(None)]
    if data is None and len(inside) < len(typing.get_args(kind)):
        return None
    if len(inside) != 1:
        raise TypeError(f"no rule to read {kind}")
    return _read(inside[0], data, key)


def _tuple(kinds: tuple[Any, ...], data: Any, key: str) -> tuple[Any, ...]:
    """Read a tuple from a list."""
    require_key(key, isinstance(data, list | tuple), "a list", data)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(data)
    require_key(key, len(data) == len(kinds), f"a list of {len(kinds)}", data)
    return tuple(_read(kind, item, f"{key}[{i}]") for i, (kind, item) in enumerate(zip(kinds, data, strict=True)))


def _plain(kind: Any, data: Any, key: str) -> Any:
    """Read a number, string or boolean."""
    if kind is float:
        return _number(data, key)
    if kind is int:
        require_key(key, isinstance(data, int) and not isinstance(data, bool), "a whole number", data)
        return data
    words = {str: "a string", bool: "true or false"}
    if kind not in words:
        raise TypeError(f"no rule to read {kind}")
    require_key(key, isinstance(data, kind), words[kind], data)
    return data


def _number(data: Any, key: str) -> float:
    """Read a number; infinities are strings, since JSON has none."""
    known = isinstance(data, int | float) and not isinstance(data, bool)
    require_key(key, known or data in ("inf", "-inf"), "a number", data)
    try:
        number = float(data)
    except OverflowError:
        number = math.nan
    require_key(key, not math.isnan(number), "a number", data)
    return number


def _under(key: str, name: Any) -> str:
    """Key of a value inside another one."""
    return f"{key}.{name}" if key else str(name)


def _short(value: Any) -> str:
    """A value in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
