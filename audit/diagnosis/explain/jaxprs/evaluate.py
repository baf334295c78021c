"""One equation on one side. NumPy runs the common ones: JAX would compile each of them for every shape."""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import special

from audit.diagnosis.explain.jaxprs import key_words
from audit.diagnosis.explain.jaxprs.equations import loop_parts
from audit.diagnosis.explain.jaxprs.key_words import LARGE_DRAW, as_keys, as_words, is_key

Rule = Callable[..., Any]
PLAIN = "fiub"
"""Kinds of NumPy's own dtypes; bfloat16 is left to JAX."""
RUNNING = __file__
"""What fails here is an operation of the user's."""
SHORT_LOOP = 2**10
"""Equations of all turns of a loop up to which compiling it takes longer."""
LARGE_PRODUCT = 2**20
"""Multiplications above which a product is worth compiling."""


def evaluate(equation: Any, values: Sequence[Any]) -> list[Any]:
    """The results of an equation; NumPy's warnings are the caller's to silence, once for all equations."""
    name, params = equation.primitive.name, equation.params
    rule = RULES.get(name)
    values = [value if isinstance(value, np.ndarray) else as_words(value) for value in values]
    if name in ("jit", "pjit") and all(variable.aval.size <= LARGE_DRAW for variable in equation.outvars):
        return inner(params["jaxpr"], values)
    if name == "scan" and params["length"] * len(params["jaxpr"].jaxpr.eqns) <= SHORT_LOOP:
        return _scanned(equation, values)
    if name == "sort" and params["num_keys"] == 1 and all(map(_is_plain, values)):
        return _sorted(params, values)
    if rule is not None and all(_is_plain(value) for value in values) and _is_plain_out(equation):
        out = equation.outvars[0].aval
        found = rule(out, params, *map(np.asarray, values))
        if found is not None:
            return [np.asarray(found, key_words.KEY if is_key(out) else out.dtype)]
    run = functools.partial(equation.primitive.bind, **params)
    if name == "random_gamma":
        run = _compiled_once(equation.primitive, tuple(params.items()))
    found = run(*map(as_keys, values))
    return list(map(as_words, found if equation.primitive.multiple_results else [found]))


@functools.lru_cache(maxsize=16)
def _compiled_once(primitive: Any, params: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """A primitive of which JAX compiles a new program whenever it is called by itself."""
    return jax.jit(functools.partial(primitive.bind, **dict(params)))


def inner(closed: Any, values: Sequence[Any]) -> list[Any]:
    """The results of a program inside of an equation, equation by equation."""
    jaxpr = closed.jaxpr
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *values], strict=True))

    def read(atom: Any) -> Any:
        if isinstance(atom, jax_core.Literal):
            return np.asarray(atom.val, getattr(atom.aval, "dtype", None))
        return known[atom]

    for equation in live(jaxpr):
        known.update(zip(equation.outvars, evaluate(equation, [read(atom) for atom in equation.invars]), strict=True))
    return [as_words(read(atom)) for atom in jaxpr.outvars]


def _scanned(scan: Any, values: Sequence[Any]) -> list[Any]:
    (fixed, carried), params = loop_parts(scan), scan.params
    consts, carry, columns = values[:fixed], values[fixed : fixed + carried], values[fixed + carried :]
    order, rows = range(params["length"]), []
    for step in reversed(order) if params["reverse"] else order:
        outs = inner(params["jaxpr"], [*consts, *carry, *(column[step] for column in columns)])
        carry, rows = outs[:carried], [*rows, outs[carried:]]
    rows = rows[::-1] if params["reverse"] else rows
    return [*carry, *(stacked(column) for column in zip(*rows, strict=True))]


def _sorted(params: dict[str, Any], values: Sequence[Any]) -> list[Any]:
    arrays, axis = list(map(np.asarray, values)), params["dimension"]
    order = np.argsort(arrays[0], axis=axis, kind="stable")
    return [np.take_along_axis(array, order, axis) for array in arrays]


@functools.lru_cache(maxsize=1024)
def live(jaxpr: Any) -> list[Any]:
    """The equations that reach an output, or do something beside: a draw that nobody reads gives nothing away."""
    needed, kept = {*_variables(jaxpr.outvars)}, []
    for equation in reversed([part for own in jaxpr.eqns for part in _in_known_terms(own)]):
        if equation.effects or not needed.isdisjoint(equation.outvars):
            kept.append(equation)
            needed.update(_variables(equation.invars))
    return kept[::-1]


COLLECTIVE = {"psum": lax.reduce_sum, "pmax": lax.reduce_max, "pmin": lax.reduce_min}
"""Sums over an axis that has a name, and what they are where ``vmap`` gave that axis its name."""


def _in_known_terms(equation: Any) -> list[Any]:
    """An equation as one or more that are followed."""
    name, params = equation.primitive.name, equation.params
    if name == "unstack":
        # what newer releases of JAX write where an array is unpacked (``a, b = pair``)
        take, parts = functools.partial(lax.index_in_dim, axis=params["axis"], keepdims=False), equation.outvars
        return _rewritten(equation, lambda x: [take(x, place) for place in range(len(parts))])
    if name == "reshape" and params.get("dimensions") is not None:
        return _rewritten(equation, lambda x: lax.reshape(lax.transpose(x, params["dimensions"]), params["new_sizes"]))
    if name == "top_k" and params.get("axis", -1) in (-1, equation.invars[0].aval.ndim - 1):
        return _rewritten(equation, functools.partial(_largest, count=params["k"], kind=equation.outvars[1].aval.dtype))
    reduction, axes = COLLECTIVE.get(name), params.get("axes", ())
    named = not axes or any(isinstance(axis, str) for axis in axes)
    if reduction is None or named or params["axis_index_groups"] is not None:
        return [equation]
    return _rewritten(equation, lambda *parts: [reduction(part, axes=axes) for part in parts])


def _largest(x: jax.Array, *, count: int, kind: Any) -> list[jax.Array]:
    """The largest numbers along the last axis and their places, by a sort."""
    last = x.ndim - 1
    ordered, places = lax.sort((-x, lax.broadcasted_iota(kind, x.shape, last)), dimension=last, num_keys=1)
    return [lax.slice_in_dim(part, 0, count, axis=last) for part in (-ordered, places)]


def _rewritten(equation: Any, function: Callable[..., Any]) -> list[Any]:
    """The equations of a function that does the same."""
    jaxpr = jax.make_jaxpr(function)(*(atom.aval for atom in equation.invars)).jaxpr
    given = zip(jaxpr.invars, equation.invars, strict=True)
    names = {**dict(zip(jaxpr.outvars, equation.outvars, strict=False)), **dict(given)}
    if any(names[own] is not out for own, out in zip(jaxpr.outvars, equation.outvars, strict=True)):
        # an operand that is an output as it is has no equation
        return [equation]

    def named(atoms: Sequence[Any]) -> list[Any]:
        return [atom if isinstance(atom, jax_core.Literal) else names.get(atom, atom) for atom in atoms]

    return [
        own.replace(invars=named(own.invars), outvars=named(own.outvars), source_info=equation.source_info)
        for own in jaxpr.eqns
    ]


def _variables(atoms: Sequence[Any]) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, jax_core.Literal)]


def _is_plain(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in PLAIN or is_key(value)
    return getattr(getattr(value, "dtype", None), "kind", "V") in PLAIN


def _is_plain_out(equation: Any) -> bool:
    out = equation.outvars[0].aval
    return len(equation.outvars) == 1 and (_is_plain(out) or is_key(out))


def _elementwise(function: Callable[..., Any]) -> Rule:
    return lambda out, params, *values: function(*values)


def _floating(function: Callable[..., Any]) -> Rule:
    def rule(out: Any, params: Any, *values: Any) -> Any:
        return function(*values) if all(value.dtype.kind == "f" for value in values) else None

    return rule


def _reduction(function: Callable[..., Any]) -> Rule:
    return lambda out, params, x: function(x, axis=tuple(params["axes"])) if x.size else None


def _sum(out: Any, params: Any, x: np.ndarray) -> Any:
    return np.sum(x, axis=tuple(params["axes"]), dtype=x.dtype)


def _broadcast(out: Any, params: Any, x: np.ndarray) -> Any:
    shape = [1] * len(params["shape"])
    for size, dim in zip(x.shape, params["broadcast_dimensions"], strict=True):
        shape[dim] = size
    return np.broadcast_to(x.reshape(shape), params["shape"])


def _select(out: Any, params: Any, which: np.ndarray, *cases: np.ndarray) -> Any:
    return np.where(which, cases[1], cases[0]) if len(cases) == 2 and which.dtype == bool else None


def _slice(out: Any, params: Any, x: np.ndarray) -> Any:
    strides = params["strides"] or (1,) * x.ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return x[tuple(slice(*bound) for bound in bounds)]


def _pad(out: Any, params: Any, x: np.ndarray, fill: np.ndarray) -> Any:
    config = params["padding_config"]
    if any(low < 0 or high < 0 or interior for low, high, interior in config):
        return None
    return np.pad(x, [(low, high) for low, high, _ in config], constant_values=fill)


def _iota(out: Any, params: Any) -> Any:
    shape = [1] * len(out.shape)
    shape[params["dimension"]] = -1
    return np.broadcast_to(np.arange(out.shape[params["dimension"]]).reshape(shape), out.shape)


def _product(out: Any, params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    contracting, batch = params["dimension_numbers"]
    work = x.size * y.size / max(1, np.prod([x.shape[dim] for dim in (*contracting[0], *batch[0])]))
    if work > LARGE_PRODUCT or x.ndim + y.ndim > len(string.ascii_lowercase):
        return None
    left, right = list(string.ascii_lowercase[: x.ndim]), list(string.ascii_lowercase[x.ndim : x.ndim + y.ndim])
    for one, other in [*zip(*contracting, strict=True), *zip(*batch, strict=True)]:
        right[other] = left[one]
    shared = [left[dim] for dim in batch[0]]
    summed = {left[dim] for dim in contracting[0]}
    kept = [letter for letter in (*left, *right) if letter not in summed and letter not in shared]
    spelled = f"{''.join(left)},{''.join(right)}->{''.join(shared + kept)}"
    return np.einsum(spelled, x.astype(out.dtype), y.astype(out.dtype))


def _gather(out: Any, params: dict[str, Any], x: np.ndarray, places: np.ndarray) -> Any:
    """Rows by their number along one axis."""
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    axes = numbers.start_index_map
    others = [size for dim, size in enumerate(x.shape) if dim not in axes]
    plain = len(axes) == 1 and axes == numbers.collapsed_slice_dims and not numbers.operand_batching_dims
    if not plain or [size for dim, size in enumerate(sizes) if dim not in axes] != others:
        return None
    (axis,), places = axes, places[..., 0].astype(np.int64)
    known = np.clip(places, 0, x.shape[axis] - 1)
    front = np.moveaxis(x, axis, 0)[known]
    if params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP and not np.array_equal(known, places):
        return None
    batch = [dim for dim in range(len(out.shape)) if dim not in numbers.offset_dims]
    return np.moveaxis(front, range(front.ndim), [*batch, *numbers.offset_dims])


def _dynamic_slice(out: Any, params: dict[str, Any], x: np.ndarray, *starts: np.ndarray) -> Any:
    sizes = params["slice_sizes"]
    first = [int(np.clip(start, 0, most - size)) for start, most, size in zip(starts, x.shape, sizes, strict=True)]
    return x[tuple(slice(start, start + size) for start, size in zip(first, sizes, strict=True))]


def _cumsum(out: Any, params: Any, x: np.ndarray) -> Any:
    axis = params["axis"]
    if params["reverse"]:
        return np.flip(np.cumsum(np.flip(x, axis), axis, dtype=x.dtype), axis)
    return np.cumsum(x, axis, dtype=x.dtype)


def _quotient(out: Any, params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    if x.dtype.kind == "f":
        return np.divide(x, y)
    return (x - np.fmod(x, y)) // y if np.all(y) else None


def _shift_right(out: Any, params: Any, x: np.ndarray, by: np.ndarray) -> Any:
    return np.right_shift(x, by) if x.dtype.kind == "u" and np.all(by < 8 * x.dtype.itemsize) else None


RULES: dict[str, Rule] = {
    **{
        name: _elementwise(function)
        for name, function in {
            "add": np.add,
            "add_any": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "neg": np.negative,
            "max": np.maximum,
            "min": np.minimum,
            "abs": np.abs,
            "and": np.bitwise_and,
            "or": np.bitwise_or,
            "xor": np.bitwise_xor,
            "eq": np.equal,
            "ne": np.not_equal,
            "lt": np.less,
            "le": np.less_equal,
            "gt": np.greater,
            "ge": np.greater_equal,
            "sign": np.sign,
            "square": np.square,
            "copy": np.array,
            "copy_p": np.array,
            "stop_gradient": np.array,
        }.items()
    },
    **{
        name: _floating(function)
        for name, function in {
            **{name: getattr(np, name) for name in ("exp", "log", "log1p", "expm1", "sqrt", "tanh", "sin", "cos")},
            "pow": np.power,
            "rsqrt": lambda x: 1 / np.sqrt(x),
            "logistic": special.expit,
            "floor": np.floor,
            "ceil": np.ceil,
            "erf": special.erf,
            "erf_inv": special.erfinv,
            "is_finite": np.isfinite,
        }.items()
    },
    "div": _quotient,
    "rem": lambda out, params, x, y: np.fmod(x, y) if x.dtype.kind == "f" or np.all(y) else None,
    "integer_pow": lambda out, params, x: x ** params["y"] if x.dtype.kind == "f" else None,
    "not": lambda out, params, x: np.logical_not(x) if x.dtype == bool else np.invert(x),
    "clamp": lambda out, params, low, x, high: np.minimum(np.maximum(x, low), high),
    "select_n": _select,
    "shift_right_logical": _shift_right,
    "shift_left": lambda out, params, x, by: np.left_shift(x, by) if np.all(by < 8 * x.dtype.itemsize) else None,
    "bitcast_convert_type": lambda out, params, x: (
        x.view(out.dtype) if x.dtype.itemsize == out.dtype.itemsize else None
    ),
    "convert_element_type": lambda out, params, x: x.astype(out.dtype),
    "broadcast_in_dim": _broadcast,
    "reshape": lambda out, params, x: x.reshape(out.shape) if params.get("dimensions") is None else None,
    "squeeze": lambda out, params, x: x.reshape(out.shape),
    "transpose": lambda out, params, x: np.transpose(x, params["permutation"]),
    "reduce_sum": _sum,
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "reduce_prod": _reduction(np.prod),
    "reduce_and": _reduction(np.all),
    "reduce_or": _reduction(np.any),
    "slice": _slice,
    "concatenate": lambda out, params, *parts: np.concatenate(parts, axis=params["dimension"]),
    "stack": lambda out, params, *parts: np.stack(parts, axis=params["axis"]),
    "pad": _pad,
    "rev": lambda out, params, x: np.flip(x, params["dimensions"]),
    "iota": _iota,
    "cumsum": _cumsum,
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "dot_general": _product,
    **key_words.RULES,
}
"""What NumPy computes; a rule that gives None leaves the equation to JAX."""


def stacked(rows: Sequence[Any]) -> Any:
    """Arrays, or keys, one after the other."""
    if all(map(_is_plain, rows)):
        return np.stack([np.asarray(row) for row in rows])
    return as_words(jnp.stack(list(map(as_keys, rows))))
