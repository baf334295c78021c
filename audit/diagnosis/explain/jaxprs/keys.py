"""Who drew from which key, and who split it: a key that serves twice gives draws that are not independent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from audit.diagnosis.explain.findings import Finding, Kind, found
from audit.diagnosis.explain.jaxprs.value import Value, host
from audit.diagnosis.explain.places import Place

MOST_KEYS = 2**16
"""Keys of one draw that are compared with those of others."""


@dataclasses.dataclass(frozen=True)
class Use:
    """One draw from a key."""

    at: Place
    path: tuple[int, ...]
    shape: tuple[int, ...]


@dataclasses.dataclass(eq=False)
class Keys:
    """The keys of one run."""

    find: Callable[[Finding], None]
    _uses: dict[bytes, list[Use]] = dataclasses.field(default_factory=dict)
    _parents: dict[bytes, Place] = dataclasses.field(default_factory=dict)

    def drawn(self, key: Value, use: Use) -> None:
        """Remember who drew from a key, and say who did so before."""
        for words in _words(key):
            uses = self._uses.setdefault(words, [])
            if words in self._parents:
                self._both(self._parents[words], use.at)
            before = next((other for other in uses if other != use), None)
            if before is not None:
                steps = f" (steps {_step(before.path)} and {_step(use.path)} of a loop)"
                how = "" if before.path == use.path else steps
                self.find(found(Kind.KEY_USED_TWICE, first=before.at, second=use.at, how=how))
            if use not in uses:
                uses.append(use)

    def split(self, key: Value, place: Place) -> None:
        """Remember who derived keys from a key: the numbers drawn from it are functions of those keys."""
        for words in _words(key):
            self._parents.setdefault(words, place)
            for before in self._uses.get(words, ())[:1]:
                self._both(before.at, place)

    def _both(self, first: Place, second: Place) -> None:
        how = " (the key is both drawn from and split)"
        self.find(found(Kind.KEY_USED_TWICE, first=first, second=second, how=how))


def _words(key: Value) -> Iterator[bytes]:
    words = host(key.b)
    for row in words.reshape(-1, words.shape[-1])[:MOST_KEYS]:
        yield row.tobytes()


def _step(path: tuple[int, ...]) -> str:
    return ".".join(str(1 + number) for number in path) or "1"
