"""A program traced on both datasets, and one run of both sides of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.jaxprs.drawn_choices import Forced
from audit.diagnosis.explain.jaxprs.drawn_once import Alike
from audit.diagnosis.explain.jaxprs.equations import CannotFollowError, FirstRoundEnded, own_lines
from audit.diagnosis.explain.jaxprs.evaluate import inner
from audit.diagnosis.explain.jaxprs.facts import Idle
from audit.diagnosis.explain.jaxprs.interpreter import Lockstep
from audit.diagnosis.explain.jaxprs.key_hands import Hands
from audit.diagnosis.explain.jaxprs.key_words import as_keys, as_words, is_key
from audit.diagnosis.explain.jaxprs.noise_meets_data import Meetings
from audit.diagnosis.explain.jaxprs.one_dataset import Alone, of_another_size, places_do_not_matter
from audit.diagnosis.explain.jaxprs.record_shares import Company
from audit.diagnosis.explain.jaxprs.value import COUNT, Tag, Value, host, is_no_number
from audit.diagnosis.explain.missing_noise import without_noise
from audit.diagnosis.explain.places import NOWHERE, Frame, Place, among_records, goes_on
from audit.diagnosis.explain.sentences import SHOWN, changed_after_release, not_followed
from audit.trials.jaxprs import inside_of
from audit.trials.traced import why_no_release
from mechanisms.adapters.same_draws import on_both_sides
from mechanisms.contract import Mechanism
from mechanisms.networks import INITIAL_SEED
from mechanisms.pairs.neighbours import Neighbours

LEAST_SHARE = 0.6
"""Of its size that another record keeps where each is made a little smaller than the one before."""
BEFOREHAND = "a number that was computed from the dataset before the release"
FEWEST = 3
"""Records without which one more can be left out."""
SHORT = 1000
"""Equations of a program that is replayed in about two seconds."""
SHORT_OUTPUT = 2**14
MOST_NAMED = 4
"""Outputs that one sentence names beside the first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A mechanism on both datasets, traced once per side."""

    a: Any
    b: Any
    function: Alike
    sides: tuple[Any, Any]
    leaves: tuple[tuple[Any, Any], ...]
    """Arrays of the two datasets, in pairs."""
    rows: bool
    """Whether the arrays have records as their first axis."""
    names: tuple[str, ...]
    counts: tuple[int, int]
    group: int
    index: int
    reach: float
    """By how many clipping norms the two sums may lie apart: one record goes and another comes under substitution."""
    stated: Stated = dataclasses.field(default_factory=Stated)
    rounds: int = 1
    """Rows of a transcript: each is a round of its own, whether or not it reads the one before."""

    @property
    def can_be_scaled(self) -> bool:
        """Whether a record can be made larger: words and labels cannot."""
        return self.rows and any(jnp.issubdtype(other.dtype, jnp.floating) for _, other in self.leaves)

    @functools.cached_property
    def sizes(self) -> tuple[bool, ...]:
        """Which arrays grow with their record: those of floating-point numbers, but for masks of ones and zeros."""
        floating = [self.rows and jnp.issubdtype(other.dtype, jnp.floating) for _, other in self.leaves]
        if not self.can_be_scaled:
            return tuple(floating)
        masks = [all(side.size == len(side) and np.isin(side, (0, 1)).all() for side in pair) for pair in self.leaves]
        grows = tuple(one and not mask for one, mask in zip(floating, masks, strict=True))
        return grows if any(grows) else tuple(floating)

    @property
    def numbers(self) -> int:
        """Of all outputs."""
        return sum(aval.size for aval in self.a.out_avals)

    @property
    def alone(self) -> tuple[Alone, Alone]:
        """Each side by itself."""
        return Alone(self.a, self.counts, self.group), Alone(self.b, self.counts, self.group)

    def trace_again(self) -> None:
        """Run the user's Python once more, as far as JAX has not kept what it traced."""
        # of a function that it knows JAX keeps the trace, and nothing would run
        jax.make_jaxpr(lambda *given: self.function(*given))(jax.random.key(0), self.sides[0])

    @functools.cached_property
    def hands(self) -> Hands:
        """Who handed out keys while that ran."""
        return Hands(self.trace_again)

    def fewer(self, key: jax.Array) -> Program | None:
        """The same with one of the other records left out; None where the code does not take so few."""
        if not self.rows or self.counts[0] < FEWEST:
            return None
        first = self.counts[0] == self.counts[1] and range(self.counts[1])[self.index] == 0
        kept = slice(None, -1) if first else slice(1, None)
        sides = tuple(jax.tree.map(lambda column: host_leaf(column)[kept], side) for side in self.sides)
        try:
            with own_lines():
                a, b = (jax.make_jaxpr(self.function)(key, side) for side in sides)
        except Exception:
            # nobody promised that it would take another number of records
            return None
        leaves = tuple(zip(*map(jax.tree.leaves, sides), strict=True))
        index = self.index - 1 if self.index > 0 else self.index
        counts = self.counts[0] - 1, self.counts[1] - 1
        return dataclasses.replace(self, a=a, b=b, sides=sides, leaves=leaves, counts=counts, index=index)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of both sides found."""

    lockstep: Lockstep
    left: tuple[Finding, ...]
    """Of outputs that still differ at the end."""
    outs: Sequence[tuple[str, Value]] = ()
    """Outputs with their names."""
    no_number: str = ""
    """An output that is no number on both sides."""
    ended: bool = False
    """Whether it was ended after the first round."""


def traced(mechanism: Mechanism, neighbours: Neighbours, key: jax.Array, stated: Stated) -> Program:
    """Both sides as jaxprs; the differing record is put last where the sizes differ."""
    function, sides, rows = on_both_sides(mechanism, neighbours)
    with own_lines():
        program = _program(Alike(begun(function)), sides, neighbours, key, rows=rows)
    lengths = {aval.shape[:1] for aval in program.a.out_avals} if mechanism.kind == "transcript" else set()
    rounds = lengths.pop()[0] if len(lengths) == 1 and lengths != {()} else 1
    return dataclasses.replace(program, rounds=rounds, stated=stated)


def _program(function: Alike, sides: Sequence[Any], pair: Neighbours, key: jax.Array, *, rows: bool) -> Program:
    a, shapes = jax.make_jaxpr(lambda *given: _arrays(function(*given)), return_shape=True)(key, sides[0])
    b = jax.make_jaxpr(function)(key, sides[1])
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(shapes)[0]]
    leaves = [[host_leaf(leaf) for leaf in jax.tree.leaves(side)] for side in sides]
    if len(leaves[0]) != len(leaves[1]) or len(a.out_avals) != len(b.out_avals):
        raise CannotFollowError("the two datasets are not made of the same arrays", NOWHERE)
    if [aval.shape for aval in a.out_avals] != [aval.shape for aval in b.out_avals]:
        raise CannotFollowError(
            "its outputs have different shapes on the two datasets, which tells them apart", NOWHERE
        )
    counted = pair.records_without or 1
    more = counted + (pair.group if pair.relation == "add_remove" else 0)
    return Program(
        a=a,
        b=b,
        function=function,
        sides=(sides[0], sides[1]),
        leaves=tuple(zip(*leaves, strict=True)),
        rows=rows,
        names=tuple(names),
        counts=(counted, more),
        group=pair.group,
        index=pair.index,
        reach=pair.group * (2.0 if pair.relation == "substitution" else 1.0),
    )


def _arrays(released: Any) -> Any:
    """What a step returns, as long as it is made of arrays."""
    if why := why_no_release(released):
        raise CannotFollowError(why, NOWHERE)
    return released


def begun(code: Any) -> Any:
    """A training with its first state at hand; as it is where it has begun, is no training, or cannot be traced.

    NumPy computes it: XLA would compile each draw of it, and a replay needs no last digit.
    """
    if not hasattr(code, "init") or "_start" in vars(code):
        return code
    from mechanisms.adapters.for_jax import JaxTraining

    return dataclasses.replace(code, init=_computed(code.init)) if isinstance(code, JaxTraining) else code


def _computed(init: Any) -> Any:
    key = jax.random.key(INITIAL_SEED)
    try:
        # what ``init`` keeps elsewhere must be arrays: then it runs once more as it is
        with jax.checking_leaks():
            closed, shapes = jax.make_jaxpr(init, return_shape=True)(key)
        with jax.enable_x64(True), np.errstate(all="ignore"):
            leaves = list(map(as_keys, inner(closed, [as_words(key)])))
    except Exception:
        return init
    loose = [aval.weak_type for aval in closed.out_avals]
    leaves = [leaf.item() if weak else leaf for leaf, weak in zip(leaves, loose, strict=True)]
    state = jax.tree.unflatten(jax.tree.structure(shapes), leaves)
    return lambda key: jax.tree.map(jnp.asarray, state)


def is_short(program: Program) -> bool:
    """Whether one run takes about as long as a few dozen trials at most: its equations, those of loops once a turn."""
    return program.numbers <= SHORT_OUTPUT and _turns(program.b.jaxpr) <= SHORT


def _turns(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "while":
            # nobody knows how often
            return float("inf")
        inner = [getattr(part, "jaxpr", part) for part in inside_of(equation)]
        total += 1 + equation.params.get("length", 1) * sum(map(_turns, inner))
    return total


def run_once(
    program: Program,
    key: jax.Array,
    *,
    scale: float = 1.0,
    whole: float = 1.0,
    others_apart: bool = False,
    company: Company | None = None,
    first_round: bool = False,
    share: float | None = None,
    seats: bool = False,
    rest: float | None = None,
) -> Run:
    """Both sides once; with the record made larger, all of them smaller, or the others made unlike one another.

    Of the ``first_round`` alone its releases are told, and what is found on the way to them. A ``share`` stands in for
    the number that is drawn for the record, or for its one of more ``seats``, and ``rest`` for all others.
    """
    words = as_words(key)
    arguments = [Value(a=words, b=words, random=True)]
    last = program.counts[1]
    place = range(last)[program.index] if program.counts[0] == last else last - program.group
    slots = frozenset(range(place, place + program.group))
    forced = None if share is None else Forced(share, slots, program.counts, seats, rest)
    sides = {"counts": program.counts, "group": program.group}
    lockstep = Lockstep(**sides, company=company, first_round=first_round, forced=forced)
    lockstep.meetings.together.adds_up = program.stated.mu_of_all is not None
    for grows, (one, other) in zip(program.sizes, program.leaves, strict=True):
        if not program.rows:
            same = np.shape(one) == np.shape(other) and np.array_equal(one, other)
            arguments.append(Value(a=one, b=one) if same else Value(a=one, b=other, values=True, origin=BEFOREHAND))
            continue
        if others_apart:
            order = _places_changed(last, slots)
            one, other = one[order[: len(one)]], other[order]
        if grows:
            factors = np.linspace(1.0, LEAST_SHARE, last) if others_apart else np.ones(last)
            factors *= whole
            factors[sorted(slots)] = whole
            one = one * _as_rows(factors[: len(one)], one)
            factors[sorted(slots)] = whole * scale
            other = other * _as_rows(factors, other)
        arguments.append(Value(a=one, b=other, values=True, tag=Tag(0, slots)))
    # dtypes are explicit in a jaxpr, and a step may use 64 bits inside
    with jax.enable_x64(True), np.errstate(all="ignore"):
        try:
            outs = lockstep.run(program.a, program.b, arguments)
        except FirstRoundEnded:
            return Run(lockstep=lockstep, left=(), ended=True)
        except CannotFollowError as error:
            lockstep.meetings.together.broken_off = True
            lockstep.judge_keys(program)
            return Run(lockstep=lockstep, left=(not_followed(error.why, error.at),))
        finally:
            for finding, at in lockstep.meetings.by_count.items():
                left = of_another_size(finding, at, program.alone, arguments) if forced is None else [finding]
                lockstep.findings.update(dict.fromkeys(left))
        first = scale == whole == 1.0 and not others_apart
        if first and lockstep.lined_up is not None and not places_do_not_matter(program.alone[0], arguments, outs):
            lockstep.meetings.out_of_line(lockstep.lined_up)
    for out in outs:
        lockstep.meetings.together.see(out.open)
    lockstep.judge_keys(program)
    for finding in lockstep.meetings.together.seen_too_early():
        lockstep.find(finding)
    for name, out in zip(program.names, outs, strict=True):
        if not out.differs and (idle := out.idle or _shown(out)) is not None:
            lockstep.meetings.idle.setdefault(idle)
        if out.open is not None:
            for release in out.open.releases:
                release.output = name
                release.linear = release.linear or out.open.coordinates is not None
    nan = [name for name, out in zip(program.names, outs, strict=True) if not out.differs and is_no_number(out.a)]
    left = tuple(_all_left(program, outs, lockstep.meetings))
    named = list(zip(program.names, outs, strict=True))
    return Run(lockstep=lockstep, left=left, outs=named, no_number=_output(nan[0]) if nan else "")


def _shown(out: Value) -> Idle | None:
    """Raw data of which a bound or a comparison leaves no difference, as they are released."""
    return None if out.hidden is None or out.random else Idle(out.at or out.hidden, out.hidden, SHOWN)


def _places_changed(count: int, slots: frozenset[int]) -> np.ndarray:
    """Where each record comes from: half of the others stand twice, and none of three or more where it was.

    The others must not only change places, since a sum over all of them would not.
    """
    order = np.arange(count)
    others = np.setdiff1d(order, sorted(slots))
    numbers = np.arange(len(others))
    order[others] = others[(numbers - numbers % 2 + 2) % max(1, len(others))]
    return order


def _as_rows(factors: np.ndarray, column: Any) -> np.ndarray:
    return factors.astype(column.dtype).reshape(-1, *[1] * (column.ndim - 1))


def host_leaf(leaf: Any) -> Any:
    """An array of a dataset in NumPy, of the type that JAX gives it; keys as they are."""
    array = jnp.asarray(leaf)
    return as_words(array) if is_key(array) else np.asarray(array)


def _all_left(program: Program, outs: Sequence[Value], meetings: Meetings) -> list[Finding]:
    """Of the outputs that still differ; those that one line releases without noise in one sentence."""
    findings: list[Finding] = []
    bare: dict[Frame | None, list[tuple[str, Place, Value]]] = {}
    for name, out in zip(program.names, outs, strict=True):
        if out.differs and (told := _left(name, out, meetings, program.rounds)) is not None:
            findings.append(told)
        elif out.differs:
            at = out.origin if isinstance(out.origin, Place) else out.at or NOWHERE
            bare.setdefault(at.nearest, []).append((name, at, out))
    for own in bare.values():
        first, *more = [name for name, _, _ in own]
        at, last = own[0][1:]
        rounds = _in_rounds(last, program.rounds, meetings)
        leaf = f"{_output(first)}{f' (also {listed(more)})' if more else ''}{rounds}"
        fixed = last.fixed_noise if all(out.fixed_noise is not None for _, _, out in own) else None
        others = [one for one in meetings.releases if isinstance(one.origin, Place) and one.origin == at]
        noisy, muted = others[0].at if others else None, last.muted
        shapes = {one.moved.shape for one in others}
        # a sum of whose shape none gets noise is left out where others get theirs
        unused = muted is None and all(np.shape(out.a) in shapes for _, _, out in own)
        left = NOWHERE if noisy is None or muted is not None else goes_on(noisy, last.way, others[0].way)
        # what else is done on the way to where parts of an output are put together; other leaves go there, too
        left = left if unused or (left.own and left not in last.way[-1:]) else NOWHERE
        inside = (others[0].inside or NOWHERE) if others else NOWHERE
        told = without_noise(leaf, at, noisy, left, fixed=fixed, muted=muted, unused=unused, inside=inside)
        findings.append(told)
    return findings


def _output(name: str) -> str:
    return f"the leaf {name} of the output" if name else "the output"


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are, unless that is one."""
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED + 1 else []
    return ", ".join([*names[: MOST_NAMED if more else None], *more])


def _in_rounds(out: Value, rounds: int, meetings: Meetings) -> str:
    """In which rounds of a transcript one of its leaves differs, if others have noise of its shape."""
    row = np.shape(out.a)[1:]
    if np.shape(out.a)[:1] != (rounds,) or not any(release.moved.shape == row for release in meetings.releases):
        return ""
    bare = [1 + row for row in range(rounds) if not np.array_equal(host(out.a)[row], host(out.b)[row])]
    return "" if len(bare) == rounds else f", in round{'s' if len(bare) > 1 else ''} {', '.join(map(str, bare))},"


def _left(name: str, out: Value, meetings: Meetings, rounds: int) -> Finding | None:
    """Of an output that still differs: what was done to it after its noise; None where it had none."""
    at, name = out.at or NOWHERE, _output(name)
    if out.uncoupled is not None:
        return not_followed(f"{name} depends on a batch that N and N + 1 records draw differently", out.uncoupled)
    if out.opaque is not None:
        return not_followed(f"{name} went through code that the trace does not enter", out.opaque)
    if out.leak is not None and out.leak.muted is not None and isinstance(out.leak.origin, Place):
        return without_noise(f"{name}{_in_rounds(out, rounds, meetings)}", out.leak.origin, muted=out.leak.muted)
    if out.leak is not None and not (out.picked and out.blurred):
        chosen = NOWHERE if out.leak.choice is None else among_records(out.leak.choice, meetings.readers)
        return changed_after_release(out.leak.at, out.leak.origin, meetings.readers, read=out.leak.read, number=chosen)
    if out.blurred or out.noise:
        return not_followed(f"noise reaches {name} in a way that is not followed", at)
    if out.random and not out.values and out.origin == COUNT:
        return not_followed(f"{COUNT} changes what a random choice makes of {name}", at)
    return None
