"""What the result of an equation is made of, from what its inputs are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from audit.diagnosis.explain.jaxprs import axes
from audit.diagnosis.explain.jaxprs.answers_by_coins import by_coins
from audit.diagnosis.explain.jaxprs.equations import COMPARISONS
from audit.diagnosis.explain.jaxprs.facts import Idle, Leak, Mixed, Origin
from audit.diagnosis.explain.jaxprs.key_words import is_key
from audit.diagnosis.explain.jaxprs.noise import SUMS
from audit.diagnosis.explain.jaxprs.packing import follow_packing, is_shifted
from audit.diagnosis.explain.jaxprs.value import COUNT, DRAWN, Tag, Value, first, host, known, scaled_by_count, settled
from audit.diagnosis.explain.jaxprs.weights import SAME_NUMBERS, distance, gain_after, weigh
from audit.diagnosis.explain.places import Place, function_around
from audit.diagnosis.explain.sentences import NOISE, RECORDS, RELEASE

PRODUCTS = frozenset({"mul", "div", "dot_general", "pow", "select_n", "rem"})
NONLINEAR = frozenset(
    {"max", "min", "sqrt", "rsqrt", "cbrt", "exp", "exp2", "log", "log1p", "expm1", "pow", "integer_pow", "square"}
    | {"tanh", "logistic", "sign", "clamp", "sort", "abs", "reduce_max", "reduce_min"}
)
MULTIPLYING = PRODUCTS - {"select_n"}
CHOOSING = COMPARISONS | {"eq", "ne", "argmax", "argmin", "sort"}
BOUNDS = NONLINEAR | CHOOSING | {"reduce_or", "reduce_and", "is_finite"}
PICKING = frozenset({"gather", "dynamic_slice", "sort"})
"""Equations whose later operands only say where to look: their randomness is not added to what is picked."""

APART = frozenset(
    {"mul", "div", "max", "min", "neg", "abs", "sqrt", "rsqrt", "pow", "integer_pow", "square", "exp", "exp2"}
    | {"log", "log1p", "broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "copy", "slice"}
    | {"stop_gradient", "select_n", "pad", "concatenate", "expand_dims", "clamp", "copy_p", "rev", "stack"}
)
"""Equations in which entries do not meet."""
ENTRY_BY_ENTRY = frozenset({"convert_element_type", "lt", "le", "gt", "ge", "not", "and", "mul", "select_n"})
PARTING = frozenset({"slice", "dynamic_slice", "gather", "split"})
"""Equations that take a part of their first operand."""
SIDE_BY_SIDE = frozenset({"concatenate", "stack", "dynamic_update_slice", "scatter", "pad"})
"""Equations that put values beside one another and change none."""


def labelled(
    name: str,
    params: dict[str, Any],
    at: Place,
    a: Any,
    b: Any,
    ins: Sequence[Value],
    *,
    which: int,
    counts: tuple[int, int],
    group: int,
    derived: bool = False,
) -> Value:
    """The result with its labels; noise that meets data is for ``noise_meets_data.py``.

    ``derived`` says that differentiation made the equation: what a gradient multiplies by is no clipping factor.
    """
    spread = ins[0].spread if ins else None
    if spread is not None and np.shape(a) == np.shape(b) == np.shape(spread.a) and name in (*PARTING, "squeeze"):
        return spread
    if name == "concatenate":
        # ``jnp.pad`` puts nothing in front
        ins = [value for value in ins if np.size(value.a) or np.size(value.b)] or ins
    differing = [value for value in ins if value.differs]
    other_key = _one_key(name, params, ins, a, b)
    # a key that the larger side alone has, as for its last record, serves the other as well
    a = b if other_key and not _is_among(b, ins[0]) else axes.lined_up(name, params, ins, a, b)
    tag = axes.by_size(a, b, group)
    torn = name == "reshape" and axes.is_torn(ins[0], tag, a, b)
    dealt_out = name == "reshape" and not torn and axes.is_dealt_out(ins[0], a, b)
    tag = None if dealt_out else tag
    if tag is None and np.shape(a) == np.shape(b):
        tag = axes.by_structure(name, params, ins, a, b)
    tag = axes.by_fold(name, params, ins, a, b) if tag is None and not dealt_out else tag
    values, random = any(value.values for value in ins), any(value.random for value in ins)
    sized = tag is not None and np.shape(a) != np.shape(b)
    written = _writes_choices(name, a, ins)
    mixes = any(value.mixed is not None and value.mixed.overwritten for value in ins)
    if tag is not None and sized and not (written or mixes) and (random or _moves_rows(name, tag, ins)):
        # records that look padded were mixed, unless they were picked by padded numbers
        picked = name == "gather" or any(value.tag is not None and value.tag.padding for value in ins)
        numbers = ins[1].tag if name == "gather" and ins[1].sized else None
        slots = axes.inserted(tag, a, b, padded=picked or not values)
        if numbers is not None:
            # rows lie as their numbers do; two of them may be alike
            slots = Tag(tag.axis, numbers.slots, numbers.padding)
        tag = slots if slots != tag else _divided_by_count(tag, a, b, ins, counts)
    b, others = settled(a, b, tag, each=name in APART)
    out = Value(
        a=a,
        b=b,
        at=at,
        values=values,
        random=random,
        tag=tag,
        released=max((value.released for value in ins), default=0),
        draw=first(value.draw for value in ins if value.noise) if random else None,
        scaled=known(ins, "scaled"),
        blurred=any(value.blurred for value in ins),
        uncoupled=known(differing, "uncoupled") or (at if other_key and a is not b else None),
        opaque=known(ins, "opaque"),
        copied=known(ins, "copied"),
        muted=known(ins, "muted"),
        drawn=frozenset().union(*(value.drawn for value in ins)),
        carried=known(differing, "carried"),
        joined_again=any(value.joined_again for value in differing),
    )
    _rows_drawn(name, params, out, ins)
    _fixed(name, out, ins, at)
    _hidden(name, out, ins, at)
    if dealt_out and values:
        out.uncoupled = out.uncoupled or at
    if tag is not None and not values and not others:
        # draws that no record's values touch: all that matters is how they lie now
        out.uncoupled = None
    follow_packing(name, params, out, ins, at, group)
    if not out.values and not out.packed and not mixes and is_shifted(name, out, ins):
        out.uncoupled = out.uncoupled or at
    if out.differs and out.tag is None:
        out.since = known(differing, "since") or at
    out.alone = _alone(name, params, ins) if tag is None else None
    out.spread = _spread(name, out, ins, differing)
    weigh(name, params, out, ins, at, derived)
    _sum_over_records(name, out, ins, differing, at)
    if out.differs:
        _differences(name, out, ins, differing, others, at, counts)
    out.noise = _is_noise(name, out, ins, which)
    out.blurred = out.blurred or by_coins(name, out, ins)
    out.gain = gain_after(name, params, out, ins, which)
    return out


def _one_key(name: str, params: dict[str, Any], ins: Sequence[Value], a: Any, b: Any) -> bool:
    """Whether one key is picked of as many as there are records, and on the two sides not the same."""
    if name not in PARTING or ins[0].tag is None or not (ins[0].any_serves and ins[0].random and ins[0].sized):
        return False
    picked = axes.picked(name, params, ins, ins[0].tag) is not None
    return picked and np.shape(a) == np.shape(b) and not np.array_equal(host(a), host(b))


def _is_among(key: Any, keys: Value) -> bool:
    """Whether the smaller side has a key, too."""
    assert keys.tag is not None
    rows = np.moveaxis(host(keys.a), keys.tag.axis, 0)
    return bool((rows.reshape(len(rows), -1) == host(key).reshape(1, -1)).all(axis=1).any())


def _spread(name: str, out: Value, ins: Sequence[Value], differing: Sequence[Value]) -> Value | None:
    """What was given to each record, or to one of them, as ``vmap`` does with a sum over all of them."""
    if name == "broadcast_in_dim" and differing and ins[0].tag is None and out.tag is not None:
        return ins[0]
    return ins[0].spread if name in PARTING else None


def _alone(name: str, params: dict[str, Any], ins: Sequence[Value]) -> int | None:
    """The number of the one record that a result belongs to, if that is known."""
    if name == "stack" and not params:
        # the turns of a loop
        return None
    if ins and ins[0].tag is not None and (picked := axes.picked(name, params, ins, ins[0].tag)) is not None:
        return picked
    told = {value.alone for value in ins if value.values}
    return told.pop() if len(told) == 1 else None


def _writes_choices(name: str, a: Any, ins: Sequence[Value]) -> bool:
    """Whether some of the choices that are drawn for each record are overwritten; none of them moves."""
    writes = name in ("scatter", "dynamic_update_slice") and a.dtype == jnp.bool_
    return writes and ins[0].tag is not None and not any(value.random for value in ins[1:])


def _moves_rows(name: str, tag: Tag, ins: Sequence[Value]) -> bool:
    """Whether rows were put into another order, here or before."""
    if name in ("sort", "rev") or (name == "gather" and ins[1].differs):
        return True
    sized = [value.tag for value in ins if value.sized]
    return any(own is not None and own.slots != tag.slots for own in sized)


def _divided_by_count(tag: Tag, a: Any, b: Any, ins: Sequence[Value], counts: tuple[int, int]) -> Tag:
    """The record's place before all rows were divided by their number, as for a mean; else the tag as it is."""
    sizes = np.shape(a)[tag.axis], np.shape(b)[tag.axis]
    moved = [
        value.tag
        for value in ins
        if value.tag is not None
        and value.tag.axis == tag.axis
        and not value.tag.padding
        and sizes == (np.shape(value.a)[tag.axis], np.shape(value.b)[tag.axis])
    ]
    return next((own for own in moved if own.slots != tag.slots and scaled_by_count(a, b, own, counts)), tag)


def _rows_drawn(name: str, params: dict[str, Any], out: Value, ins: Sequence[Value]) -> None:
    """Which draw each row is made of, and which of them one row that is cut out."""
    rows = next((value.by_row for value in ins if value.by_row), ())
    if rows and name in ENTRY_BY_ENTRY and np.shape(out.a)[:1] == (len(rows),):
        out.by_row = rows
    elif rows and name == "slice" and params["limit_indices"][0] - params["start_indices"][0] == 1:
        out.drawn = out.drawn.difference(rows) | {rows[params["start_indices"][0]]}


def _fixed(name: str, out: Value, ins: Sequence[Value], at: Place) -> None:
    """Numbers drawn from a constant key, and what they are added to in the place of noise."""
    out.fixed_noise = first(value.fixed_noise for value in ins if value.differs)
    fixed = [value.fixed for value in ins if value.fixed is not None]
    if not out.data and not out.random:
        keys = name == "random_seed" or any(is_key(value.a) for value in ins)
        out.fixed = fixed[0] if fixed else at if keys else None
    elif name in SUMS and fixed and out.differs and out.tag is None and not any(value.fixed_noise for value in ins):
        out.fixed_noise = at, fixed[0]


def _hidden(name: str, out: Value, ins: Sequence[Value], at: Place) -> None:
    """Raw data of which a bound or a comparison leaves no difference, and where they meet what should not read them."""
    out.hidden = first(value.hidden for value in ins if value.tag is None and not value.differs)
    bounds = name in BOUNDS or (name in PICKING and any(value.random for value in ins[1:]))
    if out.hidden is None and bounds and out.tag is None and any(value.differs for value in ins):
        out.hidden = None if out.differs else at
    out.idle = known(ins, "idle")
    for value in ins:
        if out.idle is None and value.hidden is not None and value.tag is None and not value.differs:
            each = out.tag is not None and value.values and any(own.tag is not None and own.values for own in ins)
            scales = name in PRODUCTS and out.tag is None and any(own.noise for own in ins)
            if each or scales or (out.tag is None and any(own.calm for own in ins)):
                out.idle = Idle(at, value.hidden, RECORDS if each else NOISE if scales else RELEASE)


def chosen_unseen(out: Value, hidden: Place, at: Place) -> Value:
    """What a branch gives that raw data choose, and a comparison makes them choose the same on this pair."""
    meets = NOISE if out.noise else RELEASE if out.calm else RECORDS if out.tag is not None and out.values else None
    if out.idle is not None:
        return out
    if meets is None:
        return dataclasses.replace(out, hidden=out.hidden or hidden, public=False)
    return dataclasses.replace(out, idle=Idle(at, hidden, meets))


def _sum_over_records(name: str, out: Value, ins: Sequence[Value], differing: Sequence[Value], at: Place) -> None:
    tagged = [value for value in ins if value.tag is not None]
    gone = out.tag is None and name in axes.SUMMING and any(value.values or value.differs for value in tagged)
    carried = [value for value in differing if value.tag is None] or [value for value in ins if value.tag is None]
    if gone:
        out.summed, out.origin = True, at
        if out.differs and np.shape(out.a) == np.shape(out.b):
            out.summed_by = distance(out)
    elif out.tag is None and any(value.values for value in tagged):
        # records were picked, or their axis is not followed: this may be one record or several
        out.origin = at
    elif out.tag is None:
        out.summed = any(value.summed for value in carried)
        # where the records themselves come from tells more than their number
        out.origin = first(value.origin for value in sorted(carried, key=lambda value: not value.values))
        moved = [value.summed_by for value in carried]
        out.summed_by = float(np.linalg.norm(moved)) if name in SIDE_BY_SIDE else max(moved, default=0.0)
        if name in PARTING and out.summed_by and (whole := distance(ins[0])):
            out.summed_by *= distance(out) / whole
        if out.origin is None and out.differs and not tagged and not out.values and differing:
            out.origin = COUNT
    else:
        out.origin = known(carried, "origin")
    if gone or out.tag is None:
        out.mixed = known(ins, "mixed")


def _differences(
    name: str,
    out: Value,
    ins: Sequence[Value],
    differing: Sequence[Value],
    others: bool,
    at: Place,
    counts: tuple[int, int],
) -> None:
    sums = [value for value in differing if value.tag is None and value.alone is None and not value.noise]
    out.read = None if out.tag is not None else _read(at, sums)
    if out.tag is None and out.origin is not at:
        out.way = tuple(dict.fromkeys([*(place for value in sums for place in value.way), at]))
    calm = [value for value in ins if value.calm]
    out.leak = known(differing, "leak")
    # rows that got noise, each of its own, are no raw data
    raw = [value for value in sums if not value.blurred]
    if out.leak is None and calm and raw and out.tag is None and name not in SIDE_BY_SIDE:
        picked = name in PICKING and any(value.calm for value in ins[1:])
        out.leak = Leak(at, _origin(raw[0]), _read(at, raw[:1]), raw[0].muted, known(raw, "choice"), picked=picked)
    if name in SUMS and len({value.released for value in sums if value.values and value.summed}) > 1:
        out.carried, out.joined_again = out.carried or at, True
    if out.tag is None:
        chooses = name in CHOOSING and not jnp.issubdtype(out.a.dtype, jnp.inexact)
        out.choice = known(differing, "choice") or (at if chooses else None)
        out.nonlinear = known(differing, "nonlinear")
        told = [value for value in sums if value.summed and value.values]
        if out.nonlinear is None and told and (name in NONLINEAR or (name in PRODUCTS and len(told) > 1)):
            out.nonlinear = at
        if out.mixed is None and name in MULTIPLYING and _holds_another(ins) and any(value.values for value in sums):
            out.mixed = _mixed(at, [value for value in sums if value.values], out)
        return
    if not others or scaled_by_count(out.a, out.b, out.tag, counts):
        return
    mixed = known(ins, "mixed")
    torn = name == "reshape" and axes.is_torn(ins[0], out.tag, out.a, out.b)
    moves = name in SAME_NUMBERS and mixed is None and np.size(ins[0].a) == np.size(out.a) and not torn
    # a choice that the number of records overwrites is another record's without this one
    written = mixed.overwritten if mixed is not None else _writes_choices(name, out.a, ins)
    if moves or ((out.random or name == "sort") and not out.values and not written):
        # what only moves numbers mixes none: records stand in other places
        out.uncoupled = out.uncoupled or at
        return
    own = Mixed(at, None, out.leak) if torn else _mixed(at, sums or differing, out, overwritten=written)
    out.mixed = mixed or own


def _mixed(at: Place, by: Sequence[Value], out: Value, *, overwritten: bool = False) -> Mixed:
    """That other records begin to differ, by the values that make them so."""
    one = by[0]
    through = one.origin if one.tag is not None else _origin(one)
    return Mixed(at, through, out.leak, known(by, "muted"), bool(one.weights), one.way, np.shape(one.a), overwritten)


def _holds_another(ins: Sequence[Value]) -> bool:
    """Whether a value of one other record's is among some, where a loop takes one after the other."""
    return any(value.alone is not None and value.values and not value.differs for value in ins)


def _read(at: Place, sums: Sequence[Value]) -> Place:
    """Where the function around a line first read one of some numbers: in this line, if nowhere before."""
    around = [function_around(frame) for frame in at.own[:1]]
    reads = (value.read for value in sums if value.read is not None)
    return next((read for read in reads if around == [function_around(frame) for frame in read.own[:1]]), at)


def _origin(value: Value) -> Origin:
    origin = value.origin or (COUNT if not value.values else value.at) or COUNT
    return DRAWN if origin == COUNT and value.random else origin


def _is_noise(name: str, out: Value, ins: Sequence[Value], which: int) -> bool:
    """Continuous randomness alone: a comparison ends it, and so does a record."""
    if not out.random or out.a.dtype == jnp.bool_ or is_key(out.a):
        return False
    if name in MULTIPLYING and any(value.picked for value in ins):
        return False
    if name == "random_bits":
        return not ins[0].values
    if name in PICKING:
        sources = [ins[which if name == "sort" and which < len(ins) else 0]]
    elif name == "select_n":
        sources = list(ins[1:])
    else:
        sources = list(ins)
    return any(value.noise or (name == "random_unwrap" and value.random) for value in sources)


def combined(one: Value, other: Value, at: Place | None) -> Value:
    """Side a of one value and side b of another, where the two programs are not the same equations."""
    if one is other:
        return one
    if np.shape(one.a) == np.shape(other.b):
        b, _ = settled(one.a, other.b, None)
    else:
        b = other.b
    return Value(
        a=one.a,
        b=b,
        at=at,
        values=one.values or other.values,
        random=one.random or other.random,
        noise=one.noise and other.noise and b is one.a,
        variance=one.variance if b is one.a else None,
        draw=one.draw,
        origin=first((other.origin, one.origin, other.at)),
        way=other.way or one.way,
        mixed=one.mixed or other.mixed,
        released=max(one.released, other.released),
        leak=one.leak or other.leak,
        # the larger side may go on with a release, as where each record brings noise of its own
        blurred=one.blurred or other.blurred or min(one.released, other.released) > 0,
        uncoupled=one.uncoupled or other.uncoupled,
        packed=(one.packed or other.packed) and not (one.values or other.values),
        displaced=one.displaced or other.displaced,
        opaque=one.opaque or other.opaque,
        tag=one.tag if np.shape(one.a) == np.shape(other.b) and one.tag == other.tag else None,
        bent=one.bent or other.bent,
        drawn=one.drawn | other.drawn,
        carried=one.carried or other.carried,
        joined_again=one.joined_again or other.joined_again,
        open=other.open if b is one.a else None,
    )
