"""Escaping of names and messages, which may contain what a terminal, a log or XML would act on."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, TypeVar

# C0, DEL, C1, lone surrogates, line and direction marks of Unicode, what nobody sees, and what XML has no word for
_ACTIVE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\U000e0000-\U000e007f]"
)
_COMMAND = re.compile(r"(?<!\S)::|::(?=[a-z-]+( [^:]*)?::)|##(?=[A-Za-z]*\[)")
"""Commands to build systems that read the log.

GitHub's runner takes `::name::` after blanks and `##[name]` anywhere, others `##vso[` and `##teamcity[`. Long lines are
folded in many places, so a command is taken apart wherever it stands in a line.
"""
_MARKDOWN = re.compile(r"[|`*~\\]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""An underscore between letters is no emphasis, and stays readable."""
_BRACKETS = re.compile(r"[\[\]]")
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    # at the beginning of a row these would be arguments of the line's end before it
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
}
LONGEST = 120
"""Characters of a name that a paper shows; CSV has all of them."""
_PLACE = re.compile(r"[\w.-]{1,40}\.\w{1,5}:\d+")
Value = TypeVar("Value")


def visible(text: str) -> str:
    """The text on one line, every control character written as its escape."""
    shown = _ACTIVE.sub(lambda found: _written(found[0]), text)
    return _COMMAND.sub(lambda found: _written(found[0][0]) + found[0][1:], shown)


def as_html(text: str) -> str:
    """The text for a page: everything escaped, text between backticks as code, no line break in ``file.py:24``."""
    placed = _PLACE.sub(r'<span class="place">\g<0></span>', html.escape(text))
    return re.sub("`([^`]+)`", r"<code>\1</code>", placed)


def printable(text: str) -> str:
    """A message of several lines with control characters escaped; line ends and tabs stay."""
    return "\n".join(visible(line.expandtabs()) for line in text.split("\n"))


def shown(value: Value) -> Value:
    """A record, or any part of it, with every string made visible."""
    return _shown(value)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if value is None or isinstance(value, int | float):
        # most of a record is numbers
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value) if field.init)
        return dataclasses.replace(value, **{name: _shown(getattr(value, name)) for name in fields})
    if isinstance(value, Mapping):
        return {_shown(key): _shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_shown(item) for item in value)
    return value


def markdown_text(text: str) -> str:
    """Text that Markdown and HTML inside it leave unchanged, also in a table's cell."""
    escaped = _MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", html.escape(visible(text), quote=False))
    return _BRACKETS.sub(lambda found: f"\\{found[0]}", escaped)


def latex_text(text: str) -> str:
    """Text as LaTeX text on one line; characters outside ASCII become question marks."""
    flat = " ".join(unicodedata.normalize("NFKC", text).split())
    return "".join(_LATEX.get(c, c if c.isascii() and c.isprintable() else "?") for c in flat)


def latex_name(text: str) -> str:
    """A name as LaTeX text, cut to the room that a paper has."""
    shown = visible(text)
    return latex_text(shown) if len(shown) <= LONGEST else latex_text(shown[:LONGEST]) + r"\ldots{}"


def json_text(data: Any, *, indent: int | None = None) -> str:
    """The data as JSON that contains no command for a log's reader: two number signs occur only inside strings."""
    return json.dumps(data, indent=indent).replace("##", "\\u0023#")


def command_text(text: str) -> str:
    """Text as the message of a GitHub workflow command, line ends included."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def command_property(text: str) -> str:
    """Text as a property of a GitHub workflow command, such as its title."""
    return command_text(visible(text)).replace(":", "%3A").replace(",", "%2C")


def _written(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
