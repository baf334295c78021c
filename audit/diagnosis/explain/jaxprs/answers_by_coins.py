"""Coins that change what records hold, as in randomised response, or are added to it: noise that is no number drawn.

How well such coins cover a record is not followed. Coins that take records, such as those of a Poisson batch, leave
them as they are or out: they cover nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit.diagnosis.explain.jaxprs.equations import COMPARISONS
from audit.diagnosis.explain.jaxprs.key_words import is_key
from audit.diagnosis.explain.jaxprs.noise import SUMS
from audit.diagnosis.explain.jaxprs.value import Value, host

FLIPS = COMPARISONS | {"xor", "eq", "ne"}
FACTORS = frozenset({"mul", "div", "dot_general"})


def by_coins(name: str, out: Value, ins: Sequence[Value]) -> bool:
    """Whether coins change records here, or stand in for noise."""
    records, coins = [value for value in ins if value.values], [value for value in ins if _is_drawn(value)]
    if name in FLIPS:
        return bool(records and coins)
    if name == "select_n" and records:
        which, cases = ins[0], ins[1:]
        if which.values or not _is_drawn(which):
            return which.values and all(_is_drawn(case) and not case.noise for case in cases)
        answers = all(case.values or _is_drawn(case) for case in cases)
        return answers and (any(map(_is_drawn, cases)) or _for_each_entry(which, out))
    if name in SUMS and coins and records:
        return not all(coin.noise for coin in coins)
    if (name in SUMS or name == "or") and records and all(value.random for value in ins) and out.tag is not None:
        # one of two answers is kept: that of the record, or the other one
        return not np.any(host(ins[0].b) * host(ins[1].b))
    # a number drawn from an interval that a choice picks, as in quantiles by the exponential mechanism
    picked = any(value.picked for value in records) and bool(coins)
    return name in FACTORS and bool(records) and (picked or any(map(_is_sign, coins)))


def may_leave_noise_out(ins: Sequence[Value]) -> bool:
    """Whether a coin chooses between a release and what records make without noise."""
    which, *cases = ins
    bare = [case for case in cases if case.differs and case.values and not case.blurred]
    return _is_drawn(which) and bool(bare) and any(case.calm for case in cases)


def _is_drawn(value: Value) -> bool:
    drawn = value.random and not is_key(value.a) and value.muted is None
    return drawn and not value.values and not value.released


def _for_each_entry(coins: Value, out: Value) -> bool:
    """Whether each number is changed by a coin of its own, or is a word or a number of few: no picture is turned."""
    own = host(coins.b)
    rows = (
        own.reshape(1, -1)
        if out.tag is None
        else np.moveaxis(own, out.tag.axis, 0).reshape(np.shape(out.b)[out.tag.axis], -1)
    )
    return rows.shape[1] == 1 or bool(np.any(rows != rows[:, :1]))


def _is_sign(coins: Value) -> bool:
    """Whether coins change the signs of what they multiply; those that take records are zero for some."""
    signs = host(coins.b)
    if coins.noise or np.ndim(signs) == 0 or not np.all(signs):
        return False
    return bool(np.all(np.abs(signs) == 1) or np.any(signs < 0))
