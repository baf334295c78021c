"""Releases that nobody sees one by one: what is seen of them are sums and parts, each a linear map of coordinates."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.jaxprs.facts import Open, Release
from audit.diagnosis.explain.jaxprs.noise import LINEAR, SAME, SUMS, carried
from audit.diagnosis.explain.jaxprs.seen_rows import Source, joint_law, noise_of, seen_rows, shared_by, touched
from audit.diagnosis.explain.jaxprs.value import Value
from mechanisms.adapters.noise_terms import MOST_TERMS, Terms, independent, least_change, side_by_side

KEEPS = SUMS | SAME | {"neg", "mul", "div"}
AS_THEY_ARE = 1 - 1e-6
"""Share of what releases cost one by one from which on their sum hides nothing of them."""
SLACK = 0.02
"""Share by which what noise covers may cost more than two noises would."""
CANCELS = 1.02
"""Times what coordinates would cost apart from which on their noise is told to cancel along the record."""
ROUNDED = 1e-6
"""Share of what all records move by which what one of them moves may be rounded."""
UNTOLD = "it is seen only in sums with others, in more ways than are followed"
BARE = "random numbers that it shares with others do not cover all that is seen of them"
UNCOUNTED = "its noise shares random numbers with others, and what they cost together is not followed"
LATER = "more records were added to it after it was seen, and then more noise, which is not followed"
UNSEEN = "the replay was broken off before anybody saw it"


@dataclasses.dataclass(eq=False)
class Together:
    """What is seen of the releases of one run."""

    broken_off: bool = False
    """Whether the run was not followed to its end: what nobody has seen by then may be summed, or get more noise."""
    sources: list[Source] = dataclasses.field(default_factory=list)
    """In the order of their coordinates."""
    _known: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))
    """Coordinates that are seen by themselves, or follow from what is."""
    _for_certain: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))
    """Those that are seen other than where a draw or data choose one of several."""
    _instead: list[tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=list)
    """Those of which one is chosen, each with the other."""
    _sums: dict[bytes, Terms] = dataclasses.field(default_factory=dict)
    """What is seen of the others, row by row."""
    _passed: list[tuple[np.ndarray, Release, Finding]] = dataclasses.field(default_factory=list)
    adds_up: bool = False
    """Whether the claim says what all rounds may cost together."""
    apart: set[Release] = dataclasses.field(default_factory=set)
    """Releases that are told one by one: of their noise it was said that it serves twice, or one alone is seen."""

    def opened(
        self, shape: tuple[int, ...], variance: Any, *, of: Release | Terms | None, draws: frozenset[int] = frozenset()
    ) -> Open:
        """Coordinates that nobody has seen yet; so many that they are not followed are told as they are."""
        size, first = math.prod(shape), self._known.size
        release, terms = (of, None) if isinstance(of, Release) else (None, of)
        releases = () if release is None else (release,)
        if size > MOST_TERMS:
            return Open(releases, None)
        self.sources.append(Source(release, np.broadcast_to(variance, shape), terms, first, draws))
        self._known, self._for_certain = np.pad([self._known, self._for_certain], ((0, 0), (0, size)))
        return Open(releases, independent(first, shape, 1.0))

    def carry(
        self, name: str, params: dict[str, Any], primitive: Any, out: Value, ins: Sequence[Value], which: int
    ) -> Open | None:
        """What is open in the result of an equation; what it cannot carry is seen here."""
        opened = [value.open for value in ins if value.open is not None]
        if not opened:
            return None
        # sums alone grow from round to round, as weights do
        drop = self._new if name in (*SUMS, "reduce_sum", "cumsum", "dot_general") else lambda whole: whole
        parts = [None if value.open is None else drop(value.open.coordinates) for value in ins]
        found, among = None, opened[0].among if name in KEEPS and np.shape(out.a) == np.shape(ins[0].a) else ()
        if name == "select_n":
            among = self._chosen([value.open for value in ins[1:]])
        if any(part is not None for part in parts):
            found = carried(name, params, primitive, ins, parts, which, np.shape(out.a))
            if found is None:
                for place, part in enumerate(parts):
                    self._see(part, chosen=name == "select_n" and place > 0)
        if name not in LINEAR:
            return None
        return Open(tuple(dict.fromkeys(own for one in opened for own in one.releases)), found, among)

    def joined(self, one: Open | None, other: Open) -> Open:
        """The sum of both, of one shape."""
        if one is None or one.coordinates is None or other.coordinates is None:
            coordinates = other.coordinates if one is None else one.coordinates or other.coordinates
        elif (coordinates := one.coordinates.plus(other.coordinates)) is None:
            self._see(one.coordinates)
            coordinates = other.coordinates
        return Open((*(() if one is None else one.releases), *other.releases), coordinates)

    def stacked(self, column: Sequence[Value], length: int) -> Open | None:
        """The rows that a loop stacks, of which the larger side alone may have more."""
        opened = [value.open for value in column if value.open is not None]
        parts = [None if value.open is None else value.open.coordinates for value in column]
        found, rows = None, parts[:length]
        if any(part is not None for part in rows):
            found = side_by_side(rows, np.shape(column[0].a))
        for part in parts if found is None else parts[length:]:
            self._see(part)
        return Open(tuple(dict.fromkeys(own for one in opened for own in one.releases)), found) if opened else None

    def without_later_noise(self, opened: Open | None, covers: Open | None) -> Open | None:
        """Releases without the noise that was added to those which cover another now."""
        if opened is None or opened.coordinates is None or covers is None or covers.coordinates is None:
            return opened
        numbers = np.where(
            np.isin(opened.coordinates.numbers, covers.coordinates.numbers), opened.coordinates.numbers, -1
        )
        gone = np.zeros(numbers.shape, bool)
        for source in self.sources:
            if source.release is None:
                gone |= (source.first <= numbers) & (numbers < source.first + source.own_variance.size)
        return Open(opened.releases, opened.coordinates.without(gone))

    def see(self, opened: Open | None) -> None:
        """From here on this value is known."""
        self._see(None if opened is None else opened.coordinates)

    def unseen(self, opened: Open) -> bool:
        """Whether this is one release as it is, and nobody has seen anything of it."""
        part = opened.coordinates
        if part is None or not part.times.size:
            return False
        source = next((one for one in reversed(self.sources) if one.first == part.numbers.flat[0]), None)
        if source is None or opened.releases != (source.release,):
            return False
        numbers = np.arange(source.first, source.first + source.own_variance.size)
        alike = part.times.size == numbers.size and np.array_equal(part.numbers.ravel(), numbers)
        return bool(alike and np.all(part.times == 1) and not np.any(self._known[numbers]))

    def passed(self, opened: Open, finding: Finding) -> None:
        """What is to be said if somebody sees a release as it was before more records were added to it."""
        if opened.coordinates is not None:
            self._passed.append((opened.coordinates.numbers.ravel(), opened.releases[0], finding))

    def seen_too_early(self) -> list[Finding]:
        """Of releases that were seen before all of their records were added."""
        rows = self._settled()
        seen = self._known | (np.diff(rows.tocsc().indptr) > 0)
        early = [(release, finding) for numbers, release, finding in self._passed if np.any(seen[numbers])]
        latest = {source.release: source for source in self.sources}
        noise = [source for source in self.sources if source.release is None]
        for release in dict.fromkeys(release for release, _ in early):
            own = touched(rows, [latest[release]])
            if own.any() and not (np.any(self._known[latest[release].places]) or np.any(own & ~touched(rows, noise))):
                release.unknown = release.unknown or LATER
        return [finding for release, finding in early if release.unknown != LATER]

    def _unseen(self, coordinates: Terms | None) -> Terms | None:
        if coordinates is None or not self._known.any():
            return coordinates
        gone = self._known[coordinates.numbers]
        return coordinates if not gone.any() else coordinates.without(gone)

    def _new(self, coordinates: Terms | None) -> Terms | None:
        if coordinates is not None:
            used = coordinates.numbers[coordinates.times != 0]
            self._for_certain[used] |= self._known[used]
        return self._unseen(coordinates)

    def _chosen(self, cases: Sequence[Open | None]) -> tuple[Terms, ...]:
        """Remember which coordinates stand in for one another where one of several cases is chosen: all of them."""
        parts = [() if one is None else (*one.among, *filter(None, [one.coordinates])) for one in cases]
        for one, other in itertools.combinations(parts, 2):
            for pair in itertools.product(one, other):
                if all(part.times.shape[-1] == 1 for part in pair):
                    both = (pair[0].times != 0) & (pair[1].times != 0)
                    self._instead.append((pair[0].numbers[both], pair[1].numbers[both]))
        return tuple(itertools.chain(*parts))

    def serves_both(self, one: Release, other: Release) -> bool:
        """Whether the same noise may cover two releases: one alone is seen, or it covers all that both tell."""
        latest = {source.release: source for source in self.sources}
        pair = [latest[release] for release in (one, other) if release in latest]
        if self.broken_off or len(pair) < 2:
            return False
        rows, sizes = self._settled(), [source.own_variance.size for source in pair]
        seen = self._known | (np.diff(rows.tocsc().indptr) > 0)
        if sizes[0] == sizes[1]:
            first, second = (source.first + np.arange(sizes[0]) for source in pair)
            instead = np.zeros(sizes[0], bool)
            for left, right in self._instead:
                for these, those in ((left - first[0], right - second[0]), (right - first[0], left - second[0])):
                    instead[these[(these == those) & (these >= 0) & (these < sizes[0])]] = True
            instead &= ~(self._for_certain[first] | self._for_certain[second])
            if np.all(instead | ~(seen[first] & seen[second])):
                self.apart.update((one, other) if instead.any() else ())
                return True
        return self._covered(rows, pair, dear=self.adds_up)

    def serves_again(self, draws: Sequence[int]) -> bool:
        """Whether noise that two draws gave alike serves different releases, and covers all that is seen of them."""
        serving = [[one for one in self.sources if draw in one.draws] for draw in draws]
        rows, pair = self._settled(), [*serving[0], *serving[1]]
        if self.broken_off or not all(serving) or len(set(pair)) < len(pair):
            return False
        if np.any(touched(rows, serving[0]) & touched(rows, serving[1])):
            # both are in one sum, as shares of one noise
            return False
        one, other = (np.concatenate([source.numbers for source in own]) for own in serving)
        return bool(np.isin(one, other).any()) and self._covered(rows, pair, dear=True)

    def uncovered(self, releases: Sequence[Release]) -> list[tuple[Release, Release]]:
        """The first and the last of releases that share noise which does not cover all that is seen of them."""
        bare = [one for one in self.charged(releases) if one.unknown == BARE]
        return [(bare[0], bare[-1])] if len(bare) > 1 else []

    def _covered(self, rows: Any, pair: Sequence[Source], *, dear: bool) -> bool:
        """Whether shared noise covers all that is seen; unless it may be ``dear``, at no more than own noise would."""
        groups = self._groups(rows)
        group = {groups[self.sources.index(source)] for source in pair}
        if len(group) > 1:
            return False
        sources = [source for source, own in zip(self.sources, groups, strict=True) if {own} == group]
        law = joint_law(rows, sources, [self._known[source.places] for source in sources])
        costs = [None] if law is None else [least_change(law[0], moved) for moved in law[1].T]
        record, records, whatever = (math.inf if cost is None else cost for cost in (*costs, None, None)[:3])
        cheap = record <= (1 + SLACK) * math.sqrt(sum(one.cost**2 for one in _releases(sources)))
        # sums that one draw covers may be the same by their lines, others only on this pair
        drawn_once = bool(pair[0].draws & pair[-1].draws)
        return (cheap and drawn_once and math.isfinite(records)) or ((cheap or dear) and math.isfinite(whatever))

    def _see(self, coordinates: Terms | None, *, chosen: bool = False) -> None:
        if coordinates is not None:
            used = coordinates.numbers[coordinates.times != 0]
            self._for_certain[used] |= self._known[used] | (not chosen)
        left = self._unseen(coordinates)
        if left is None:
            return
        rows = Terms(*(array.reshape(-1, array.shape[-1]) for array in (left.numbers, left.times)))
        several = np.sum(rows.times != 0, axis=-1) > 1
        single = ~several[:, None] & (rows.times != 0)
        self._known[rows.numbers[single]] = True
        if several.any():
            rest = Terms(rows.numbers[several], rows.times[several])
            self._sums.setdefault(rest.numbers.tobytes() + rest.times.tobytes(), rest)

    def _settled(self) -> Any:
        """What is seen in sums alone, as a matrix: a sum of which all but one are known tells that one, too."""
        width = self._known.size
        if not self._sums:
            return sparse.csr_matrix((0, width))
        rows = sparse.vstack([part.over(width) for part in self._sums.values()]).tocsr()
        while True:
            rows = sparse.csr_matrix(rows @ sparse.diags((~self._known).astype(float)))
            rows.eliminate_zeros()
            number = np.diff(rows.indptr)
            single = np.flatnonzero(number == 1)
            if not single.size:
                return rows[np.flatnonzero(number > 1)]
            self._known[rows.indices[rows.indptr[single]]] = True

    def charged(self, releases: Sequence[Release], *, apart: bool = False) -> list[Release]:
        """What is known of each release costs, in their order; those whose noise shares numbers cost as one.

        Told ``apart``, no noise shares any.
        """
        place = {id(release): number for number, release in enumerate(releases)}
        rows, charges = self._settled(), dict(enumerate(releases))
        groups: dict[int, list[Source]] = {}
        for source, group in zip(self.sources, self._groups(rows, apart=apart), strict=True):
            groups.setdefault(group, []).append(source)
        for sources in groups.values():
            own, seen = _releases(sources), [self._known[source.places] for source in sources]
            mine = rows[np.flatnonzero(touched(rows, sources))] if rows.shape[0] else rows
            shared = not apart and self._shared(sources)
            if not own or not (shared or len(sources) > 1 or not seen[0].all()):
                continue
            if not (mine.shape[0] or any(part.any() for part in seen)):
                for one in own:
                    if self.broken_off:
                        charges[place[id(one)]] = dataclasses.replace(one, unknown=one.unknown or UNSEEN)
                    else:
                        charges.pop(place[id(one)])
                continue
            for number in (place[id(release)] for release in own):
                charges.pop(number)
            joint = self._as_one if shared else self._joint
            charges.update((place[id(one)], told) for one, told in joint(mine, sources, seen))
        return [charges[number] for number in sorted(charges)]

    def _shared(self, sources: Sequence[Source]) -> bool:
        """Whether a number of noise stands in two coordinates, of several sources or of one without its blocks."""
        left = [source for source in sources if source.release not in self.apart]
        single = [source.release for source in left if source.release is not None]
        if any(one.terms is not None and not one.blocks and not one.terms.plain for one in single):
            return True
        shared = shared_by(left)
        return bool(shared.nnz > np.count_nonzero(shared.diagonal()))

    def _groups(self, rows: Any, *, apart: bool = False) -> list[int]:
        """Sources that are seen in one sum are of one group, and those that share numbers of noise."""
        if len(self.sources) < 2:
            return [0] * len(self.sources)
        sizes = [source.own_variance.size for source in self.sources]
        member = sparse.csr_matrix(
            (np.ones(sum(sizes)), (np.arange(sum(sizes)), np.repeat(np.arange(len(sizes)), sizes)))
        )
        meets = (abs(rows) @ member).tocsr()
        both = meets.T @ meets + self._of_one_release()
        if not apart:
            once = sparse.diags([float(source.release not in self.apart) for source in self.sources])
            both = both + once @ shared_by(self.sources) @ once
        return list(sparse.csgraph.connected_components(both, directed=False)[1])

    def _of_one_release(self) -> Any:
        """Which sources are one release, as it was before and after more records were added to it."""
        first = {id(source.release or source): place for place, source in enumerate(reversed(self.sources))}
        last = len(self.sources) - 1
        places = [last - first[id(source.release or source)] for source in self.sources]
        ones = np.ones(len(places))
        return sparse.csr_matrix((ones, (np.arange(len(places)), places)), (len(places), len(places)))

    def _as_one(
        self, rows: Any, sources: Sequence[Source], seen: Sequence[np.ndarray]
    ) -> list[tuple[Release, Release]]:
        """What releases cost whose noise shares numbers: as much as the least change of these that moves all as far."""
        releases = _releases(
            [one for one, own in zip(sources, seen, strict=True) if own.any() or touched(rows, [one]).any()]
        )
        law, top = joint_law(rows, sources, seen), max(releases, key=lambda one: one.cost)
        cost = (
            None if law is None else least_change(law[0], law[1][:, 0], ROUNDED * float(np.linalg.norm(law[1][:, 1])))
        )
        if law is None or cost is None or math.isinf(cost):
            why = BARE if cost else UNCOUNTED
            return [(one, dataclasses.replace(one, unknown=one.unknown or why)) for one in releases]
        moved = law[1][:, 0].reshape(top.moved.shape if len(sources) == 1 and seen[0].all() else -1)
        variance = np.asarray(law[0].multiply(law[0]).sum(axis=1)).reshape(moved.shape)
        if cost:
            # told in its own units, with all the noise that covers it
            variance = np.full(moved.shape, np.sum(np.square(moved)) / cost**2)
        changed: dict[str, Any] = {"moved": moved, "variance": variance, "blocks": (), "shares": tuple(releases)}
        changed["unknown"] = next((one.unknown for one in releases if one.unknown), None)
        changed["exact"] = all(one.exact for one in releases)
        return [(top, dataclasses.replace(top, round=releases[0].round, **changed))]

    def _joint(self, rows: Any, sources: Sequence[Source], seen: Sequence[np.ndarray]) -> list[tuple[Release, Release]]:
        """What several releases cost that are seen in sums: each its share.

        A sum over rounds hides nothing of them where each moves it in the same direction; one of parts of a batch, each
        with a part of the noise, costs what its only part with the record would under all of that noise.
        """
        releases = _releases(sources)
        first = {source.release: source.first for source in sources}
        moving = [one for one in releases if one.cost > 0] or releases[-1:]
        both = seen_rows(rows, sources, seen)
        noise = noise_of(both, sources)
        terms = None if noise is None else Terms.of_matrix(noise)
        blocks = None if terms is None else () if terms.plain else terms.covariance()
        if terms is None or blocks is None or not all(np.all(np.isfinite(one.moved)) for one in releases):
            return [(one, dataclasses.replace(one, unknown=one.unknown or UNTOLD)) for one in moving]

        def seen_move(release: Release, by: np.ndarray) -> np.ndarray:
            return both[:, first[release] : first[release] + by.size] @ by.ravel()

        unknown = next((one.unknown for one in releases if one.unknown), None)
        changed: dict[str, Any] = {"exact": all(one.exact for one in releases), "unknown": unknown}
        whole = sum(one.cost**2 for one in moving)
        moved = np.sum([seen_move(one, one.moved) for one in moving], axis=0)
        told = []
        for one in moving:
            alike = [other for other in releases if other.round == one.round]
            # steps of a loop have names of their own; what Python repeats shares one
            several = len(alike) > 1 and (len(one.round) == 1 or sum(other.cost > 0 for other in alike) > 1)
            own = dataclasses.replace(one, round=(*one.round, alike.index(one)) if several else one.round)
            share = 1.0 if len(moving) == 1 else one.cost / math.sqrt(whole)
            # noise that covers nothing is told along all coordinates
            length = one.moved if one.cost else np.ones(one.moved.shape)
            sums = dataclasses.replace(own, variance=terms.variance, blocks=blocks, **changed)
            sums.moved = share * moved if one.cost else seen_move(one, length)
            if len(moving) > 1 and sums.cost >= AS_THEY_ARE * one.cost:
                told.append((one, own))
            elif one.cost and sums.cost > CANCELS * sums.cost_apart:
                told.append((one, sums))
            else:
                # a sum that is seen twice moves no further: told in its own units, with all the noise that covers it
                covers = float(np.sum(np.square(length))) / sums.cost**2 if sums.cost else math.inf
                variance = np.full(one.moved.shape, covers)
                told.append((one, dataclasses.replace(own, variance=variance, blocks=(), **changed)))
        return told


def _releases(sources: Sequence[Source]) -> list[Release]:
    return list(dict.fromkeys(source.release for source in sources if source.release is not None))
