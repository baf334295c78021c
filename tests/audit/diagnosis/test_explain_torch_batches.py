"""Batches of PyTorch code that depend on who else is in them: no sum is clipped there."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from diagnosis import torch_steps as steps  # noqa: E402


def explained(step):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(21, steps.COLUMNS)).astype("f4"), rng.normal(size=21).astype("f4")
    x[-1], y[-1] = 6 * x[-1], -20
    without, with_record = ((torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (20, 21))
    pair = Neighbours(without=without, with_record=with_record, relation="add_remove")
    return explain(callable_step(step), pair, key=jax.random.key(3), noise_multiplier=steps.NOISE)


def poisson(data):
    return torch.rand(len(data[0])) < 0.5


def released(rows, mask=1.0):
    return (torch.as_tensor(mask) * steps.clipped(rows).T).sum(1) + steps.noise()


def hardest(seed, data):
    torch.manual_seed(seed)
    taken = poisson(data)
    x, y = data[0][taken], data[1][taken]
    x = x[y.abs().topk(min(5, len(y))).indices]  # wrong
    return released(x)


def filled_up(seed, data):
    torch.manual_seed(seed)
    x = data[0][poisson(data)]
    x = torch.cat([x, x[-1:].expand(max(0, 24 - len(x)), -1)])  # wrong
    return released(x)


@pytest.mark.parametrize("step", [hardest, filled_up])
def test_the_line_that_takes_records_by_the_others_stands_first(step):
    source, start = inspect.getsourcelines(step)
    (line,) = [start + at for at, text in enumerate(source) if "# wrong" in text]
    first = explained(step).findings[0]
    assert first.kind == "records_mixed_before_sum"
    assert first.lines[0] == (inspect.getsourcefile(step), line)


def packed(seed, data):
    torch.manual_seed(seed)
    taken = poisson(data)
    order = torch.argsort((~taken).int(), stable=True)[:18]
    return released(data[0][order], taken[order].float())


def test_packed_batches_are_not_judged_and_the_reason_is_true():
    (only,) = explained(packed).findings
    assert only.kind == "not_followed"
    assert "the batches of the two datasets differ" in only.says
