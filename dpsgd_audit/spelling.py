"""Which known word a misspelt one stands for, and nouns after numbers: every 'did you mean' is made here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known word that is most like ``word``; None if none reaches the likeness, a number from 0 to 1."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)
    return close[0] if close else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """' (did you mean ...?)', to stand behind a word that a message repeats: a word like it, or one that it begins."""
    text, words = str(word), list(known)
    begun = [
        each for each in words if (each.startswith(text) or text.startswith(each)) and min(len(each), len(text)) > 2
    ]
    close = closest(text, words) or closest(text, begun, likeness=0.0)
    return f" (did you mean {close!r}?)" if close else ""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun, in the plural where it is due."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
