"""The variance of noise through the equations that only scale, move or add it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from audit.diagnosis.explain.jaxprs.evaluate import RULES
from audit.diagnosis.explain.jaxprs.facts import Resized
from audit.diagnosis.explain.jaxprs.key_words import is_key
from audit.diagnosis.explain.jaxprs.value import Value, host
from audit.diagnosis.explain.places import NOWHERE
from mechanisms.adapters.noise_terms import Terms, of_terms, total

SUMS = frozenset({"add", "sub", "add_any"})
SAME = frozenset({"convert_element_type", "reduce_precision", "copy", "copy_p", "device_put", "stop_gradient"})
"""Equations that move nothing."""
MOVES = SAME | frozenset(
    {"reshape", "squeeze", "slice", "transpose", "broadcast_in_dim", "concatenate", "tile", "reduce_sum", "rev", "pad"}
    | {"optimization_barrier", "split", "dynamic_slice", "gather", "stack", "dynamic_update_slice", "scatter"}
    | {"select_n"}
)
LINEAR = SUMS | MOVES | {"neg", "mul", "div", "cumsum", "dot_general"}
PLACES = {
    "select_n": slice(0, 1),
    "gather": slice(1, 2),
    "scatter": slice(1, 2),
    "dynamic_slice": slice(1, None),
    "dynamic_update_slice": slice(2, None),
}
"""Which operands of an equation are numbers of places."""
ROUNDS = frozenset({"round", "floor", "ceil"})
FINE = 10.0
"""Deviation from which on rounding to whole numbers leaves noise as it is: of normal numbers to 0.05%."""
MIXES_NOISE = frozenset({"dot_general", "cumsum", "conv_general_dilated", "fft", "triangular_solve"})
"""Coordinates of noise may not be independent after these."""
BY_ENTRY = frozenset(
    {"abs", "neg", "sign", "floor", "ceil", "round", "sqrt", "rsqrt", "cbrt", "exp", "exp2", "log", "log1p", "expm1"}
    | {"sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"}
    | {"erf", "erfc", "erf_inv", "lgamma", "digamma", "logistic", "pow", "integer_pow", "square", "rem", "max", "min"}
    | {"add", "sub", "add_any", "mul", "div", "select_n", "clamp", "nextafter", "eq", "ne", "lt", "le", "gt", "ge"}
    | {"and", "or", "not", "xor", "is_finite", "complex", "conj", "real", "imag"}
)
"""Equations in which every entry is made of those in its own place."""
MOST_AXES = 16
MOST_PRODUCTS = 2**20
"""Entries of a matrix by which noise is multiplied."""
STANDARD = {"_normal": 1.0, "_normal_real": 1.0, "normal": 1.0, "_laplace": 2.0}
"""Functions of libraries that draw numbers of a standard law, and its variance."""
UNIFORM = ("_uniform", "uniform")
"""Functions of a key and of the bounds between which they draw."""
DRAWS = 2**15
"""Numbers drawn to learn the variance of a library's law that is not listed."""


def variance_after(
    name: str, params: dict[str, Any], primitive: Any, ins: Sequence[Value], which: int, shape: tuple[int, ...]
) -> Any:
    """Variance of every coordinate of an equation's result, each by itself; None where it is not known."""
    noisy = [value for value in ins if value.noise]
    if name in MIXES_NOISE or not noisy or any(value.variance is None for value in noisy):
        return None
    parts = [Terms(None, np.sqrt(np.asarray(value.variance))[..., None]) if value.noise else None for value in ins]
    found = terms_after(name, params, primitive, ins, parts, which, shape)
    return None if found is None else found.variance


def terms_after(
    name: str,
    params: dict[str, Any],
    primitive: Any,
    ins: Sequence[Value],
    parts: Sequence[Terms | None],
    which: int,
    shape: tuple[int, ...],
) -> Terms | None:
    """The result of an equation as a linear map, its operands being some (None is none); None if it is not followed."""
    known = [(place, part) for place, part in enumerate(parts) if part is not None]
    (place, first), *more = known
    if rounds(name, params, ins):
        return first if np.min(first.variance, initial=np.inf) >= FINE**2 else None
    if name in SAME:
        return first
    if name == "reduce_sum":
        return first.summed(params["axes"])
    if name == "cumsum":
        return first.cumulated(params["axis"], reverse=params["reverse"])
    if name == "dot_general":
        return None if more else _multiplied(first, params, ins, place, shape)
    if name in MOVES:
        return of_terms(lambda arrays: _moved(name, params, primitive, ins, which, shape, arrays), parts)
    if name == "neg":
        return first.scaled(-1.0)
    if name in ("real", "imag", "conj"):
        return first.part(getattr(np, name))
    if name in SUMS or name == "complex":
        second = {"sub": -1.0, "complex": 1j}.get(name, 1.0)
        signed = [part.scaled(np.full(shape, second if own else 1.0)) for own, part in known]
        one, *others = signed
        return one if one is None or not others else others[0] and one.plus(others[0])
    if name in ("mul", "div") and not more and (name == "mul" or (place == 0 and not _is_whole(ins[0]))):
        by = host(ins[1 - place].a)
        with np.errstate(divide="ignore"):
            factor = by if name == "mul" else np.ones(()) / by
        return first.scaled(factor) if np.all(np.isfinite(factor)) else None
    return None


def rounds(name: str, params: dict[str, Any], ins: Sequence[Value]) -> bool:
    """Whether an equation makes whole numbers of others: few values, of another variance."""
    if name != "convert_element_type" or jnp.issubdtype(params["new_dtype"], jnp.inexact):
        return name in ROUNDS
    return not all(map(_is_whole, ins))


def _is_whole(value: Value) -> bool:
    return not jnp.issubdtype(value.a.dtype, jnp.inexact)


def _multiplied(noise: Terms, params: dict[str, Any], ins: Sequence[Value], place: int, shape: Sequence[int]) -> Any:
    """Noise times a matrix that is the same on both sides; None where it is too large."""
    own, other = np.shape(ins[place].a), host(ins[1 - place].a).astype(np.float64)
    size = math.prod(own)
    if ins[1 - place].differs or size * max(math.prod(shape), math.prod(own)) > MOST_PRODUCTS:
        return None
    (contracting, batched) = params["dimension_numbers"]
    left, right = range(len(np.shape(ins[0].a))), range(MOST_AXES, MOST_AXES + len(np.shape(ins[1].a)))
    left, right = list(left), list(right)
    for one, two in zip((*contracting[0], *batched[0]), (*contracting[1], *batched[1]), strict=True):
        right[two] = left[one]
    summed = {left[axis] for axis in contracting[0]}
    first = [left[axis] for axis in batched[0]]
    free = [axis for axis in dict.fromkeys((*left, *right)) if axis not in summed and axis not in first]
    each: Any = np.eye(size).reshape(size, *own)
    axes = (left, right) if place == 0 else (right, left)
    made = np.einsum(each, [2 * MOST_AXES, *axes[0]], other, axes[1], [2 * MOST_AXES, *first, *free])
    numbers = np.unique(noise.numbers)
    found = Terms.of_matrix(sparse.csr_matrix(made.reshape(size, -1).T) @ noise.over(numbers.size, numbers))
    return None if found is None else Terms(numbers[found.numbers], found.times).reshaped(shape)


def carried(
    name: str,
    params: dict[str, Any],
    primitive: Any,
    ins: Sequence[Value],
    parts: Sequence[Terms | None],
    which: int,
    shape: tuple[int, ...],
) -> Terms | None:
    """A result as a map of what its operands carry, or None where it is no linear one that constants tell."""
    constant = [not value.data and not value.random for value in ins]
    places = [place for place, part in enumerate(parts) if part is not None]
    if name == "cumsum":
        part = parts[0]
        return None if part is None else part.cumulated(params["axis"], reverse=params["reverse"])
    if name == "dot_general":
        return _weighed(params, ins, parts) if len(places) == 1 and constant[1 - places[0]] else None
    if name in ("mul", "div") and not (len(places) == 1 and constant[1 - places[0]]):
        return None
    numbers = [place for place, value in enumerate(ins) if not np.issubdtype(host(value.a).dtype, np.floating)]
    if name not in LINEAR or not all(constant[place] for place in numbers):
        return None
    return terms_after(name, params, primitive, ins, parts, which, shape)


def _weighed(params: dict[str, Any], ins: Sequence[Value], parts: Sequence[Terms | None]) -> Terms | None:
    """A sum along one axis whose terms are multiplied by a row of constants."""
    (place,) = (place for place, part in enumerate(parts) if part is not None)
    part, row = parts[place], host(ins[1 - place].a).astype(np.float64)
    contracting, batch = params["dimension_numbers"]
    if part is None or row.ndim != 1 or batch[0] or len(contracting[0]) != 1:
        return None
    (axis,) = contracting[place]
    weighed = part.scaled(np.expand_dims(row, [k for k in range(part.times.ndim - 1) if k != axis]))
    return None if weighed is None else weighed.summed([axis])


def sources_after(
    name: str, params: dict[str, Any], primitive: Any, ins: Sequence[Value], which: int, shape: tuple[int, ...]
) -> Terms | None:
    """Which independent numbers every coordinate of a result is made of, in whatever way; None if that is not known."""
    parts = [(value.terms or value.sources) if value.noise else None for value in ins]
    noisy = [part for value, part in zip(ins, parts, strict=True) if value.noise]
    if not noisy or any(part is None for part in noisy):
        return None
    if name in BY_ENTRY or rounds(name, params, ins):
        own = [
            Terms(part.numbers, (part.times != 0).astype(np.float64)).scaled(np.ones(shape)) for part in noisy if part
        ]
        return total(own)
    return terms_after(name, params, primitive, ins, parts, which, shape)


def _moved(
    name: str,
    params: dict[str, Any],
    primitive: Any,
    ins: Sequence[Value],
    which: int,
    shape: tuple[int, ...],
    arrays: Sequence[np.ndarray | None],
) -> Any:
    """The same equation on one array for each that is noise; what is not noise has none."""
    if name in PLACES and any(array is not None for array in arrays[PLACES[name]]):
        return None
    if name == "select_n" and (ins[0].random or ins[0].data):
        return None

    operands = [
        np.zeros(np.shape(value.a)) if array is None else array for value, array in zip(ins, arrays, strict=True)
    ]
    if name in PLACES:
        operands[PLACES[name]] = [value.a for value in ins[PLACES[name]]]
    rule = RULES.get(name)
    found = None if rule is None else rule(jax.ShapeDtypeStruct(shape, np.float64), params, *operands)
    if found is None:
        found = primitive.bind(*operands, **params)
    return np.asarray(found[which] if primitive.multiple_results else found, np.float64)


def resized_by(name: str, out: Value, noise: Value, ins: Sequence[Value]) -> Resized | None:
    """That noise is multiplied by one number, and where."""
    others = [value for value in ins if value is not noise]
    if name not in ("mul", "div", "dot_general") or len(others) != 1 or np.size(out.a) != np.size(noise.a):
        return None
    if np.iscomplexobj(out.a):
        return None
    numbers = host(others[0].a).astype(np.float64).ravel()
    if noise.variance is None or not numbers.size or np.any(numbers != numbers[0]) or not numbers[0]:
        return None
    by = float(numbers[0]) if name != "div" else float(1 / numbers[0])
    return Resized(out.at or NOWHERE, float(np.sqrt(np.mean(noise.variance))), by, noise.resized is not None)


def repeats(name: str, ins: Sequence[Value], out: Value) -> bool:
    """Whether an equation puts one number of noise into several coordinates that none was in before."""
    if out.terms is None:
        return False
    sizes = [np.size(value.a) for value in ins if value.noise]
    grows = np.size(out.a) > max(sizes) or len(sizes) > 1 or name == "gather"
    return grows and not out.terms.plain


def variance_of_call(name: str, jaxpr: Any, ins: Sequence[Value], which: int) -> tuple[Any, bool]:
    """Variance of what a library's function draws from keys alone, and whether it was estimated from fresh keys."""
    shape = jaxpr.out_avals[which].shape
    if name in STANDARD:
        return np.full(shape, STANDARD[name]), False
    if name in UNIFORM and len(ins) == 3 and not any(value.random for value in ins[1:]):
        low, high = (host(value.a).astype(np.float64) for value in ins[1:])
        return np.broadcast_to(np.square(high - low) / 12, shape), False
    keys = [is_key(value.a) for value in ins]
    if not any(keys) or any(value.random and not key for value, key in zip(ins, keys, strict=True)):
        return None, True
    arrays = [None if key else host(value.a) for value, key in zip(ins, keys, strict=True)]
    held = tuple(None if array is None else (array.dtype, array.tobytes()) for array in arrays)
    shapes = tuple(np.shape(value.a) for value in ins)
    # the coordinates of one draw have one law
    return np.full(shape, _variance_of_draws(jaxpr, which, shapes, held)), True


@functools.lru_cache(maxsize=64)
def _variance_of_draws(jaxpr: Any, which: int, shapes: Sequence[Any], held: Sequence[tuple[Any, bytes] | None]) -> Any:
    """Of an output of a sampler, with fresh keys and the arrays that are ``held``: both sides and all runs share it."""
    repeats = int(np.clip(DRAWS // max(1, math.prod(jaxpr.out_avals[which].shape)), 8, 4096))

    def draw(key: jax.Array) -> Any:
        def given(shape: tuple[int, ...], own: tuple[Any, bytes] | None) -> Any:
            if own is None:
                return jax.random.split(key, math.prod(shape)).reshape(shape)
            return np.ndarray(shape, *own)

        return jax_core.jaxpr_as_fun(jaxpr)(*map(given, shapes, held))[which]

    return np.var(np.asarray(jax.vmap(draw)(jax.random.split(jax.random.key(repeats), repeats)), np.float64))


def effective(drawn: np.ndarray) -> float:
    """How many normal numbers would tell a deviation as well as these do: numbers that are mostly zero tell less."""
    squares = np.square(drawn - np.mean(drawn))
    spread = np.var(squares) / np.mean(squares) ** 2 if np.any(squares) else 2.0
    return float(drawn.size * 2 / max(2.0, spread))
