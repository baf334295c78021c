"""Who drew from which key, and who split it: a key that serves twice gives draws that are not independent."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.jaxprs.joint_releases import Together
from audit.diagnosis.explain.jaxprs.key_hands import Hands
from audit.diagnosis.explain.jaxprs.key_pairs import Pair, used_twice
from audit.diagnosis.explain.jaxprs.key_words import is_key
from audit.diagnosis.explain.jaxprs.value import Value, host
from audit.diagnosis.explain.places import Frame, Place
from audit.diagnosis.explain.sentences import too_few_numbers
from mechanisms.adapters.noise_terms import Terms, independent

MOST_KEYS = 2**16
"""Keys of one draw that are compared with those of others."""
MOST_ROWS = 2**12
"""Keys of one draw that are compared with one another."""


@dataclasses.dataclass(frozen=True)
class Use:
    """One draw from a key."""

    at: Place
    path: tuple[int, ...]
    shape: tuple[int, ...]
    chooses: bool = False
    """Whether it can choose records: a number for each of them, or places of some."""
    copied: Place | None = dataclasses.field(default=None, compare=False)
    taken: Place | None = dataclasses.field(default=None, compare=False)
    """Where the key was last moved or made."""
    row: int | None = dataclasses.field(default=None, compare=False)
    """Of a draw from several keys, of which some are alike."""
    numbers: Any = dataclasses.field(default=None, compare=False)
    """What a library's function drew, on the smaller side."""


UNCOVERED = "combining the releases cancels the noise"
BOTH = "the key is both drawn from and split"


@dataclasses.dataclass(eq=False)
class Keys:
    """The keys of one run."""

    find: Callable[[Finding], None]
    draws: list[Use] = dataclasses.field(default_factory=list)
    _uses: dict[bytes, list[int]] = dataclasses.field(default_factory=dict)
    _parents: dict[bytes, Place] = dataclasses.field(default_factory=dict)
    _made: dict[tuple[Any, ...], None] = dataclasses.field(default_factory=dict)
    """Keys, and where they were derived."""
    _derived: dict[bytes, dict[tuple[Frame, ...], Place]] = dataclasses.field(default_factory=dict)
    """The same by key."""
    _again: set[Place] = dataclasses.field(default_factory=set)
    """Where a key was derived a second time, as in each step of a loop."""
    _thrown_away: set[int] = dataclasses.field(default_factory=set)
    _both: dict[bytes, Pair] = dataclasses.field(default_factory=dict)
    """Keys that were drawn from and split, too."""
    _from: dict[bytes, bytes] = dataclasses.field(default_factory=dict)
    """The key that each was derived from."""
    _same_noise: list[tuple[Pair, Release, Release]] = dataclasses.field(default_factory=list)
    _too_few: list[tuple[Finding, str, frozenset[int]]] = dataclasses.field(default_factory=list)
    _numbers: dict[tuple[bytes, str, int], int] = dataclasses.field(default_factory=dict)
    """The first of the independent numbers that a function draws from a key."""
    _numbered: int = 0
    _begun: dict[bytes, Frame | None] = dataclasses.field(default_factory=dict)
    """Keys that a loop begins with twice, and its line."""

    def derived(self, key: Value, place: Place, parents: Sequence[Value] = ()) -> None:
        """Remember where keys were derived; those that came from there before are copies."""
        own = [(place.own, words) for words in _words(key)]
        self._from.update(_origins(key, parents[0]) if parents and is_key(parents[0].a) else {})
        if key.copied is None and any(one in self._made for one in own):
            key.copied = place
            self._again.add(place)
        self._made.update(dict.fromkeys(own))
        for words in _words(key):
            self._derived.setdefault(words, {}).setdefault(place.own, place)

    def drawn(self, key: Value, use: Use) -> list[int]:
        """Remember who drew from a key; the number of the draw, or one for each of several keys that are alike."""
        first, keys = len(self.draws), list(_words(key))
        alike = 1 < len(keys) <= MOST_ROWS and len(set(keys)) < len(keys)
        self.draws += [dataclasses.replace(use, row=row) for row in range(len(keys))] if alike else [use]
        for row, words in enumerate(keys):
            if words in self._parents:
                self._serves_twice(words, self._parents[words], use.at, (False, use.chooses))
            uses, number = self._uses.setdefault(words, []), first + row if alike else first
            if uses[-1:] != [number]:
                uses.append(number)
        return list(range(first, len(self.draws)))

    def begins(self, carried: Sequence[Value], place: Place) -> None:
        """Remember which keys a loop begins with twice."""
        words = [own for value in carried if value.random and is_key(value.a) for own in _words(value)]
        self._begun.update({own: place.nearest for own in words if words.count(own) > 1})

    def thrown_away(self, draws: Iterable[int]) -> None:
        """Draws that are not taken at one place, whoever takes them elsewhere."""
        self._thrown_away.update(draws)

    def split(self, key: Value, place: Place) -> None:
        """Remember who derived keys from a key: the numbers drawn from it are functions of those keys."""
        for words in _words(key):
            self._parents.setdefault(words, place)
            for before in self._uses.get(words, ())[:1]:
                self._serves_twice(words, self.draws[before].at, place, (self.draws[before].chooses, False))

    def same_noise(self, pair: Pair, one: Release, other: Release) -> None:
        """Remember two releases whose noise is the same."""
        self._same_noise.append((pair, one, other))

    def too_few(self, finding: Finding, how: str, covering: frozenset[int]) -> None:
        """Remember noise of too few numbers: it is told of the key of two of its draws, if they have one."""
        self._too_few.append((finding, how, covering))

    def terms(self, keys: Sequence[Value], name: str, shape: tuple[int, ...], variance: Any) -> Terms | None:
        """What a function draws from keys as independent numbers: of one key they are the same again."""
        fresh = independent(self._numbered, shape, variance)
        self._numbered += math.prod(shape)
        rows = np.shape(keys[0].a) if len(keys) == 1 else (0,)
        if fresh is None or 0 in shape or shape[: len(rows)] != rows or math.prod(rows) > MOST_KEYS:
            return fresh
        numbers = fresh.numbers.reshape(math.prod(rows), -1)
        words = host(keys[0].a).reshape(len(numbers), -1)
        first = [
            self._numbers.setdefault((own.tobytes(), name, numbers.shape[1]), int(begun))
            for own, begun in zip(words, numbers[:, 0], strict=True)
        ]
        numbers = np.asarray(first)[:, None] + np.arange(numbers.shape[1])
        return Terms(numbers.reshape(fresh.numbers.shape), fresh.times)

    def judge(self, releases: Sequence[Release], hands: Callable[[], Hands], seen: Together) -> None:
        """Say which keys served twice, now that it is known what each draw was for.

        ``hands`` watches the user's Python: it shows who handed the key out. ``seen`` knows what the output shows.
        """
        covering = frozenset().union(*(release.covering for release in releases))
        choosing = frozenset().union(*(release.choosing for release in releases)) - covering
        unused = self._thrown_away - covering - choosing
        told: set[bytes] = set()
        for words, pair in self._both.items():
            if self._children_are_drawn_from(words, unused) and not self._follows(words, told):
                self._tell(pair, words, told, hands)
        named: set[int] = set()
        for pair, one, other in self._same_noise:
            if id(other) in named or seen.serves_both(one, other):
                continue
            named.add(id(other))
            uses, covers = self._uses.items(), (one.covering, other.covering)
            shared = [words for words, numbers in uses if all(own.intersection(numbers) for own in covers)]
            if not shared or not all(self._follows(words, told) for words in shared):
                self._tell(pair, shared[0] if shared else None, told, hands)
            seen.apart.update((one, other))
        for finding, how, covering in self._too_few:
            again = ((words, sorted(covering.intersection(own))) for words, own in self._uses.items())
            words, numbers = next((one for one in again if len(one[1]) > 1), (None, []))
            if words is None:
                self.find(finding)
            elif not self._follows(words, told):
                one, other = (self.draws[number] for number in numbers[:2])
                pair = Pair(first=one.at, second=other.at, how=how, copied=other.copied)
                self._tell(pair, words, told, hands)
        for numbers, words in self._shared(unused):
            one, other = (self.draws[number] for number in numbers)
            together = one.row is not None and other.row is not None
            rounds = _rounds_apart(*numbers, releases, together) if one.chooses and other.chooses else None
            # the same numbers for the same batch, as where columns are drawn one by one, are no second use; nor are
            # numbers that are drawn again instead of being kept, and that are no noise
            kept = choosing.intersection(numbers) and covering.isdisjoint(numbers) and _drawn_again(one, other)
            if rounds is None and (one == other or choosing.issuperset(numbers) or kept):
                continue
            if _is_one_release(numbers, releases) or (_drawn_again(one, other) and seen.serves_again(numbers)):
                continue
            seen.apart.update(release for release in releases if not release.covering.isdisjoint(numbers))
            how = "" if rounds is None else f"for the batches of rounds {rounds[0]} and {rounds[1]}"
            if one.path != other.path and one.path and other.path:
                how = f"steps {_step(one.path)} and {_step(other.path)} of a loop"
            copied = other.copied if one.copied is not None or other.copied in self._again else None
            if not self._follows(words, told):
                chooses = one.chooses, other.chooses
                pair = Pair(first=one.at, second=other.at, how=how, copied=copied, chooses=chooses)
                self.find(used_twice(self._with_derivations(pair, words), hands))
        for one, other in seen.uncovered(releases):
            self.find(too_few_numbers(first=one.draw, second=other.at, how=UNCOVERED, shared=other.at))

    def _tell(self, pair: Pair, words: bytes | None, told: set[bytes], hands: Callable[[], Hands]) -> None:
        """Say that a key served twice; all that follows from it is said with that."""
        pair = self._with_derivations(pair, words)
        self.find(used_twice(pair, hands))
        if words is not None:
            told.add(words)
            # two places that derive the same keys have them from one key
            told.update([self._from[words]] if len(pair.derived) > 1 and words in self._from else [])

    def _with_derivations(self, pair: Pair, words: bytes | None) -> Pair:
        derived = () if words is None else tuple(self._derived.get(words, {}).values())
        if len(derived) < 2:
            derived = (pair.copied, pair.copied) if pair.copied is not None and pair.copied in self._again else ()
        begun = next((self._begun[own] for own in self._line(words) if own in self._begun), None)
        uses = (self.draws[number] for number in self._uses.get(words or b"", ()))
        taken = next((use.taken for use in uses if use.at == pair.second), None)
        return dataclasses.replace(pair, derived=derived, taken=taken, begun=begun)

    def _shared(self, unused: set[int]) -> list[tuple[tuple[int, int], bytes]]:
        """Draws from one key: each with the first before it that is alike, and with the first that is not."""
        pairs: dict[tuple[int, int], bytes] = {}
        for words, uses in self._uses.items():
            firsts: dict[Use, int] = {}
            for number in (one for one in uses if one not in unused):
                use = self.draws[number]
                unlike = next((before for known, before in firsts.items() if known != use), None)
                pairs.update({(before, number): words for before in (firsts.get(use), unlike) if before is not None})
                firsts.setdefault(use, number)
        return sorted(pairs.items(), key=lambda pair: pair[0][1])

    def _serves_twice(self, words: bytes, first: Place, second: Place, chooses: tuple[bool, bool]) -> None:
        # jax.random.binomial draws in two ways from one key and takes one of them: not the user's second use
        if first.own == second.own and first.entered is not None and first.entered == second.entered:
            return
        self._both.setdefault(words, Pair(first=first, second=second, how=BOTH, chooses=chooses))

    def _children_are_drawn_from(self, words: bytes, unused: set[int]) -> bool:
        """Whether numbers are drawn from a key that comes from another one, or nobody knows which keys do."""
        drawn = (own for own, numbers in self._uses.items() if not unused.issuperset(numbers))
        return words not in self._from.values() or any(
            words in itertools.islice(self._line(own), 1, None) for own in drawn
        )

    def _follows(self, words: bytes | None, told: set[bytes]) -> bool:
        """Whether it was said of a key, or of one that it was derived from, that it serves twice."""
        return any(own in told for own in self._line(words))

    def _line(self, words: bytes | None) -> Iterator[bytes]:
        """A key, the one that it was derived from, and so on."""
        while words is not None:
            yield words
            words = self._from.get(words)


def copied_at(out: Value, ins: Sequence[Value], at: Place) -> Place | None:
    """Where one key became several that are alike, if that is here or was before."""
    if not is_key(out.a) or not out.random:
        return out.copied
    if out.copied is not None:
        # what is folded into copies makes them keys of their own; those that one of them is split into come from it
        apart = any(value.copied is not None and _alike(value) for value in ins if is_key(value.a))
        return out.copied if not apart or np.size(out.a) == 1 or _alike(out) else None
    return (
        at if _alike(out) > sum(map(_alike, {id(value): value for value in ins if is_key(value.a)}.values())) else None
    )


def _alike(keys: Value) -> int:
    words = list(_words(keys))
    return len(words) - len(set(words))


def _drawn_again(one: Use, other: Use) -> bool:
    """Whether a library's function drew the same numbers."""
    if one.row is not None or other.row is not None or one.numbers is None or other.numbers is None:
        return False
    return np.array_equal(one.numbers, other.numbers)


def _is_one_release(numbers: Sequence[int], releases: Sequence[Release]) -> bool:
    """Whether of two draws one gives the noise of the other's release again, and neither serves another release."""
    served = [release for release in releases if not release.covering.isdisjoint(numbers)]
    return len(served) == 1 and served[0].covering.issuperset(numbers) and not served[0].repeats.isdisjoint(numbers)


def _rounds_apart(first: int, second: int, releases: Sequence[Release], together: bool) -> tuple[int, int] | None:
    """Two rounds whose batches two draws choose; rounds that do not read one another release the same twice.

    Rows that are drawn ``together`` may be for parts of one round: then the later one must read the release before.
    """
    order = list(dict.fromkeys(release.round for release in releases))
    for number, one in enumerate(releases):
        for later, other in enumerate(releases):
            if first not in one.choosing or second not in other.choosing or second in one.choosing:
                continue
            if together and one.round[-1] == other.round[-1]:
                continue
            if one.round != other.round:
                return 1 + order.index(one.round), 1 + order.index(other.round)
            if one.at == other.at and np.any(one.moved) and np.array_equal(one.moved, other.moved):
                return 1 + number, 1 + later
    return None


def _words(key: Value) -> Iterator[bytes]:
    words = host(key.b)
    for row in words.reshape(-1, words.shape[-1])[:MOST_KEYS]:
        yield row.tobytes()


def _origins(keys: Value, given: Value) -> dict[bytes, bytes]:
    """The key that each of some was derived from; nothing where their order does not tell."""
    shape = np.shape(given.b)
    if np.shape(keys.b)[: len(shape)] != shape or not np.size(given.b):
        return {}
    each = np.size(keys.b) // np.size(given.b)
    before = list(_words(given))
    return {words: before[number // each] for number, words in enumerate(_words(keys))}


def _step(path: tuple[int, ...]) -> str:
    return ".".join(str(1 + number) for number in path) or "1"
