"""PyTorch code and a claim about sampled batches, or about a number of steps."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

import guarantees
from audit.claim_fits_pair import require_steps
from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step, torch_training

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from diagnosis import torch_steps as steps  # noqa: E402

KEY = jax.random.key(3)


def pair():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, steps.COLUMNS)).astype("f4"), rng.normal(size=9).astype("f4")
    x[-1], y[-1] = 6 * x[-1], -20
    without, with_record = ((torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (8, 9))
    return Neighbours(without=without, with_record=with_record, relation="add_remove")


def explained(step, **stated):
    return explain(callable_step(step), pair(), key=KEY, **{"noise_multiplier": steps.NOISE, **stated})


def total_of(data):
    return steps.clipped(steps.gradients(steps.START, *data)).sum(0)


def here(step):
    source, start = inspect.getsourcelines(step)
    return start + next(number for number, line in enumerate(source) if "# HERE" in line)


SAMPLED = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=steps.NOISE)


def batches_by(make):
    def step(seed, data):
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(make(seed))
        taken = torch.rand(len(data[0]), generator=generator) < 0.5
        return total_of([column[taken] for column in data]) + steps.noise()

    return step


def test_batches_of_a_constant_seed_are_named_where_the_claim_samples():
    step = batches_by(lambda seed: 7)
    (found,) = explained(step, claim=SAMPLED).findings
    _, start = inspect.getsourcelines(step)
    assert found.kind == "in_every_batch"
    assert found.lines == ((__file__, start + 2), (__file__, start + 3))
    assert not explained(step).findings, "public batches are no fault of a claim without sampling"


@pytest.mark.few(1)
@pytest.mark.parametrize("make", [lambda seed: seed + 1, lambda seed: int(torch.randint(2**31, ()))])
def test_batches_whose_seed_follows_the_trials_are_left_alone(make):
    assert not explained(batches_by(make), claim=SAMPLED).findings


def everybody(seed, data):
    torch.manual_seed(seed)
    places = torch.nonzero(torch.rand(len(data[0])) < 1.5).flatten()  # HERE
    return total_of([column[places] for column in data]) + steps.noise()


def the_last_one(seed, data):
    torch.manual_seed(seed)
    kept = torch.rand(len(data[0])) < steps.RATE
    kept[-1] = True
    return total_of([column[kept.nonzero().flatten()] for column in data]) + steps.noise()  # HERE


def whole(seed, data):
    torch.manual_seed(seed)
    return total_of(data) + steps.noise()


def sampled(seed, data):
    torch.manual_seed(seed)
    return total_of(steps.poisson(data)) + steps.noise()


def test_a_batch_of_everybody_is_named_where_it_is_chosen():
    (found,) = explained(everybody, claim=SAMPLED).findings
    assert found.kind == "in_every_batch"
    assert found.lines[0] == (__file__, here(everybody)), found
    assert "in all 14 runs" in found.says
    assert "the batch chosen at" in found.says


def test_a_place_that_is_always_taken_is_found_although_others_stand_there():
    found = explained(the_last_one, claim=AS_SAMPLED).findings[0]
    assert found.kind == "in_every_batch"
    assert found.lines[0] == (__file__, here(the_last_one)), found
    assert found.says.endswith("includes it every time.")


def test_without_a_choice_the_sum_is_named():
    (found,) = explained(whole, claim=SAMPLED).findings
    assert "the sum at test_explain_torch_claims.py" in found.says


AS_SAMPLED = guarantees.subsampled_gaussian(rate=steps.RATE, noise_multiplier=steps.NOISE)


@pytest.mark.parametrize(("step", "claim"), [(sampled, AS_SAMPLED), (everybody, None)])
def test_batches_that_leave_the_record_out_or_need_not_are_left_alone(step, claim):
    assert not explained(step, claim=claim).findings


def three_steps(dataset, seed):
    weights = torch.nn.Parameter(steps.START.clone())
    optimizer = torch.optim.SGD([weights], lr=steps.LEARNING)
    for _ in range(3):
        weights.grad = total_of(dataset) + steps.noise()
        optimizer.step()


@pytest.mark.few(1)
@pytest.mark.parametrize("releases", ["transcript", "final"])
def test_a_claim_about_other_steps_is_refused(releases):
    """As an audit refuses it: it told of three rounds beside a claim about seven steps."""
    step = torch_training(three_steps, releases=releases)
    three, seven = (guarantees.poisson_training(rate=1.0, noise_multiplier=steps.NOISE, steps=n) for n in (3, 7))
    with pytest.raises(ValueError, match=r"counts 7 steps.*takes 3; state it for 3 steps"):
        explain(step, pair(), key=KEY, claim=seven)
    assert not explain(step, pair(), key=KEY, claim=three).findings


def stops_by_chance(dataset, seed):
    weights = torch.nn.Parameter(steps.START.clone())
    optimizer = torch.optim.SGD([weights], lr=steps.LEARNING)
    for _ in range(3):
        weights.grad = total_of(dataset) + steps.noise()
        optimizer.step()
        if weights.grad.sum() > 0:
            break
    return weights.detach()


def test_a_training_that_stops_by_chance_is_judged_by_a_claim_for_the_most_steps():
    """It was told to state the steps of one run."""
    final = torch_training(stops_by_chance, releases="final")
    assert final.steps_on(pair().without) is None
    most = guarantees.poisson_training(rate=1.0, noise_multiplier=steps.NOISE, steps=3)
    assert not [one for one in explain(final, pair(), key=KEY, claim=most).findings if one.kind != "not_followed"]
    with pytest.raises(
        ValueError, match="If the number of steps depends on the data or on chance, audit releases='final'"
    ):
        require_steps(torch_training(three_steps, releases="transcript"), most, taken=2)
