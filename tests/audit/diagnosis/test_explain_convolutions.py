"""Convolutions under ``vmap``: records lie among the channels, and stay apart there."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from diagnosis.convolved import NETWORKS, added, step

from audit.diagnosis.explain import explain
from audit.diagnosis.explain.jaxprs.axes import by_fold
from audit.diagnosis.explain.jaxprs.value import Tag, Value

FIRST_AND_OTHERS = [name if name == "two_views" else pytest.param(name, marks=pytest.mark.long) for name in NETWORKS]


def told(network, fault=""):
    return explain(step(NETWORKS[network], fault), added(), key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)


@pytest.mark.parametrize("network", FIRST_AND_OTHERS)
def test_a_right_step_is_followed_to_its_end(network):
    found = told(network)
    assert found.is_as_stated(1.0), found


@pytest.mark.parametrize("network", FIRST_AND_OTHERS)
@pytest.mark.parametrize(
    ("fault", "kinds"), [("kernel", {"not_clipped", "too_little_noise"}), ("centred", {"records_mixed_before_sum"})]
)
def test_a_fault_is_found(network, fault, kinds):
    found = {one.kind.value for one in told(network, fault).findings}
    assert found
    assert found <= kinds


def test_records_stand_where_a_reshape_puts_them_and_come_back():
    rows = Value(a=np.zeros((2, 3, 5)), b=np.ones((2, 4, 5)), values=True, tag=Tag(1, frozenset({2})))
    flat = np.zeros((2, 15)), np.ones((2, 20))
    tag = by_fold("reshape", {}, [rows], *flat)
    assert tag == Tag(1, frozenset(range(10, 15)), fold=5)
    folded = Value(a=flat[0], b=flat[1], values=True, tag=tag)
    assert by_fold("reshape", {}, [folded], rows.a, rows.b) == rows.tag
    # seven numbers are no whole records
    assert by_fold("reshape", {}, [folded], np.zeros((2, 7)), np.zeros((2, 7))) is None
