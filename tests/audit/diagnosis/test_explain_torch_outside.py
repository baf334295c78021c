"""Data and noise of PyTorch's that meet in NumPy or in Python's numbers: nothing there is followed, nor accused."""

from __future__ import annotations

import inspect
import math

import jax
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import explain

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

pytestmark = pytest.mark.long

WIDTH = 6
X = np.random.default_rng(0).normal(size=(10, WIDTH)).astype(np.float32) * 3


def clipped(row, bound=1.0):
    return row * min(1.0, bound / (row.norm().item() + 1e-9))


def numpy_total(x):
    total = np.zeros(WIDTH, np.float32)
    for row in torch.as_tensor(x):
        total += clipped(row).numpy()
    return total


def noise_in_numpy(x):
    return numpy_total(x) + torch.randn(WIDTH).numpy()


def half_in_numpy(x):
    total = numpy_total(x) + math.sqrt(0.5) * torch.randn(WIDTH).numpy()
    return torch.from_numpy(total) + math.sqrt(0.5) * torch.randn(WIDTH)


def summed_after(x):
    total = numpy_total(x) + torch.randn(WIDTH).numpy()
    return torch.as_tensor(total)[None].sum(0)


def parts_of_one_draw(x):
    drawn = torch.randn(2, WIDTH)
    return {
        "first": torch.from_numpy(numpy_total(x)) + math.sqrt(2) * drawn[0],
        "second": numpy_total(x) + math.sqrt(2) * drawn[1].numpy(),
    }


def total_in_python(x):
    total = sum(max(-1.0, min(1.0, row[0].item())) for row in torch.as_tensor(x))
    return [total + torch.randn(()).item(), 0.0]


def without_noise(x):
    torch.randn(WIDTH)
    return numpy_total(x)


def quantile(x, noise=1.0, counted=2.0, public=False):
    """Two rounds, the bound of the second from how many the first one clips."""
    rows, bound, released = torch.as_tensor(x), 1.0, []
    rate = 10 ** -torch.rand(()).item() if public else 1.0
    for _ in range(2):
        total, below = torch.zeros(WIDTH), 0.0
        for row in rows[torch.rand(len(rows)) < 0.5]:
            below += (row.norm().item() <= bound) - 0.5
            total = total + clipped(row, bound)
        released.append(rate * (total + noise * bound * (1 - 1 / 16) ** -0.5 * torch.randn(WIDTH)))
        below += counted * torch.randn(()).item() if counted else 0.0
        bound = bound * math.exp(-0.2 * below / 5)
    return torch.stack(released)


def half_the_noise(x):
    return quantile(x, noise=0.5)


def count_without_noise(x):
    return quantile(x, counted=0)


def public_rate(x):
    return quantile(x, counted=0, public=True)


def explained(way, rate=None):
    def step(seed, dataset):
        torch.manual_seed(seed % 2**31)
        return way(dataset)

    if rate is None:
        pair, claim = mechanisms.add_record(X[:-1], X[-1]), guarantees.gaussian(mu=1.0)
    else:
        pair = mechanisms.add_record(X[:-1], X[-1])
        claim = guarantees.poisson_training(rate=rate, noise_multiplier=1.0, steps=2)
    code = mechanisms.callable_step(
        step, releases="update" if rate is None else "transcript", clip=1.0, noise_multiplier=1.0
    )
    return explain(code, pair, key=jax.random.key(11), claim=claim)


@pytest.mark.few(2)
@pytest.mark.parametrize("way", [noise_in_numpy, half_in_numpy, summed_after, parts_of_one_draw, total_in_python])
def test_noise_that_meets_data_outside_of_pytorch_is_not_judged(way):
    found = explained(way)
    assert not found.suspicions
    assert found.not_judged


def test_what_no_noise_reaches_in_numpy_is_found():
    (found,) = explained(without_noise).findings
    assert found.kind == "released_without_noise"


def test_a_count_that_is_noised_as_a_number_of_pythons_is_not_accused():
    found = explained(quantile, rate=0.5)
    assert not found.suspicions
    (told,) = found.not_judged
    assert "Python's own numbers" in told.says
    (line,) = [at for at, text in enumerate(inspect.getsourcelines(quantile)[0]) if "below += counted" in text]
    assert told.lines[0][1] == quantile.__code__.co_firstlineno + line
    assert len(found.rounds) == 1


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        (half_the_noise, "too_little_noise"),
        (count_without_noise, "noise_scale_from_data"),
        (public_rate, "noise_scale_from_data"),
    ],
)
def test_what_is_wrong_beside_it_is_found(way, kind):
    assert kind in {one.kind for one in explained(way, rate=0.5).suspicions}
