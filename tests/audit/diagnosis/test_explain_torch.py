from __future__ import annotations

import functools
import inspect
import linecache

import jax
import numpy as np
import pytest

from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step, opacus_step, torch_training, worst_case_pair

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from diagnosis import helped_torch as helped  # noqa: E402
from diagnosis import torch_steps as steps  # noqa: E402
from diagnosis import torch_styles as styles  # noqa: E402
from diagnosis import torch_unseen as unseen  # noqa: E402

KEY = jax.random.key(3)


def pair(records=9):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(records, steps.COLUMNS)).astype("f4"), rng.normal(size=records).astype("f4")
    x[-1] *= 6
    y[-1] = -20
    without, with_record = ((torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (records - 1, records))
    return Neighbours(without=without, with_record=with_record, relation="add_remove")


def explained(step, **stated):
    return explain(callable_step(step), pair(), key=KEY, **stated)


@pytest.mark.few(3)
@pytest.mark.parametrize("step", steps.RIGHT + unseen.RIGHT + styles.RIGHT, ids=lambda step: step.__name__)
def test_right_code_stays_silent(step):
    told = explained(step, clip=steps.CLIP, noise_multiplier=steps.NOISE)
    assert not told.findings
    assert told.covered.draws
    assert told.covered.releases
    assert told.rounds
    assert all(one.multiplier == pytest.approx(steps.NOISE, rel=0.15) for one in told.rounds)


@pytest.mark.few(6)
@pytest.mark.parametrize("step", steps.WRONG + unseen.WRONG + styles.WRONG, ids=lambda step: step.__name__)
def test_a_fault_is_found_at_its_line(step):
    source, start = inspect.getsourcelines(step)
    (line, kind), *_ = [
        (start + offset, text.split("# ")[1].strip()) for offset, text in enumerate(source) if "  # " in text
    ]
    told = explained(step, clip=steps.CLIP, noise_multiplier=steps.NOISE)
    named = {found.kind: found.lines for found in told.suspicions}
    assert (inspect.getsourcefile(step), line) in named[kind]
    # nothing is clipped there, either
    assert set(named) <= {kind, "not_clipped"} if step is unseen.noise_by_longest else told.findings[0].kind == kind


@pytest.mark.few(2)
@pytest.mark.parametrize("step", [styles.right_nesterov, styles.best_of_three, styles.pairs_clipped])
def test_styles_that_were_not_judged_or_placed_elsewhere(step):
    """A release added to itself was not judged; a choice between releases was called one without noise."""
    if step in styles.RIGHT:
        assert len(explained(step, noise_multiplier=steps.NOISE).rounds) == 3
        half = explained(step, noise_multiplier=2 * steps.NOISE)
        assert [one.kind for one in half.findings] == ["too_little_noise"]
        return
    test_a_fault_is_found_at_its_line(step)


def median_bound(seed, rows):
    torch.manual_seed(seed)
    norms = rows.norm(dim=1)
    bound = norms.median()
    return (rows * (bound / norms).clamp(max=1.0)[:, None]).sum(0) + steps.NOISE * torch.randn(steps.COLUMNS)  # mixed


def median_only_logged(seed, rows):
    torch.manual_seed(seed)
    norms = rows.norm(dim=1)
    norms.median().item()
    return (rows / norms.clamp(min=1.0)[:, None]).sum(0) + steps.NOISE * torch.randn(steps.COLUMNS)


@pytest.mark.parametrize(("records", "alike"), [(6, True), (6, False), (7, False)])
def test_a_median_as_the_bound_is_found_where_one_record_more_does_not_move_it(records, alike):
    rows = np.random.default_rng(1).normal(size=(records, steps.COLUMNS))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * (1.0 if alike else np.linspace(1, 2, records)[:, None])
    rows = torch.tensor(rows.astype("f4"))
    neighbours = Neighbours(without=rows[:-1], with_record=rows, relation="add_remove")
    (told,) = explain(callable_step(median_bound), neighbours, key=KEY, noise_multiplier=steps.NOISE).findings
    assert told.kind == "records_mixed_before_sum"
    assert told.lines[:2] == tuple((__file__, median_bound.__code__.co_firstlineno + line) for line in (3, 4))
    silent = explain(callable_step(median_only_logged), neighbours, key=KEY, noise_multiplier=steps.NOISE)
    assert not silent.findings


def noisy(rows, generator=None):
    clipped = (rows / rows.norm(dim=1).clamp(min=1.0)[:, None]).sum(0)
    return clipped + steps.NOISE * torch.randn(steps.COLUMNS, generator=generator)


def seeded_in_the_step(seed, rows):
    torch.manual_seed(0)
    return noisy(rows)


def generator_of_one_seed(seed, rows):
    return noisy(rows, torch.Generator().manual_seed(1234))


def generator_without_a_seed(seed, rows):
    """PyTorch gives every new generator one and the same seed."""
    return noisy(rows, torch.Generator())


def right_derived_seed(seed, rows):
    return noisy(rows, torch.Generator().manual_seed(seed % 1000 + 3))


def right_unseeded(seed, rows):
    return noisy(rows)


def right_seed_of_numpy(seed, rows):
    return noisy(rows, torch.Generator().manual_seed(int(np.random.randint(2**31))))  # noqa: NPY002


OF_THE_MODULE = torch.Generator().manual_seed(5)


def right_generator_of_the_module(seed, rows):
    return noisy(rows, OF_THE_MODULE)


def right_fixed_order(seed, rows):
    """A constant seed for something else than noise."""
    order = torch.randperm(4, generator=torch.Generator().manual_seed(0))
    return noisy(torch.cat([rows[:4][order], rows[4:]]), torch.Generator().manual_seed(seed + 1))


def state_of_another_time(seed, rows):
    torch.set_rng_state(STATE)
    return noisy(rows)


STATE = torch.Generator().manual_seed(7).get_state()
FIXED = {
    seeded_in_the_step: seeded_in_the_step.__code__.co_firstlineno + 1,
    generator_of_one_seed: generator_of_one_seed.__code__.co_firstlineno + 1,
    state_of_another_time: state_of_another_time.__code__.co_firstlineno + 1,
    generator_without_a_seed: noisy.__code__.co_firstlineno + 2,
}
"""With the line to look at: that of the seed, or where there is none, that of the draw."""
NOT_FIXED = [right_derived_seed, right_unseeded, right_seed_of_numpy, right_generator_of_the_module, right_fixed_order]


@pytest.mark.parametrize("step", [*FIXED, *NOT_FIXED], ids=lambda step: step.__name__)
def test_noise_of_a_fixed_seed_is_found_and_other_seeds_are_not(step):
    rows = torch.tensor(np.random.default_rng(2).normal(size=(6, steps.COLUMNS)).astype("f4"))
    neighbours = Neighbours(without=rows[:-1], with_record=rows, relation="add_remove")
    told = explain(callable_step(step), neighbours, key=KEY, noise_multiplier=steps.NOISE)
    if step in NOT_FIXED:
        assert not told.findings
        return
    (finding,) = told.findings
    assert [(one.noise_deviation, one.multiplier) for one in told.rounds] == [(0.0, 0.0)]
    assert finding.kind == "released_without_noise"
    assert "the same state for every trial" in finding.says
    assert finding.lines[0] == (__file__, FIXED[step])
    assert (step is generator_without_a_seed) == ("a fixed seed" in finding.says)
    assert f"drawn at test_explain_torch.py:{noisy.__code__.co_firstlineno + 2}" in finding.says


def seeded_before_every_step(seed, rows):
    """The batches come from the trial's seed, the noise of both steps from a constant."""
    taken = torch.rand((2, len(rows)), generator=torch.Generator().manual_seed(seed)) < 0.75
    generator = torch.Generator()
    released = []
    for step in range(2):
        generator.manual_seed(7)
        released.append(noisy(rows * taken[step][:, None], generator))
    return torch.stack(released)


def test_a_constant_seed_of_every_step_is_noise_used_again_and_the_same_in_every_run():
    rows = torch.tensor(np.random.default_rng(2).normal(size=(6, steps.COLUMNS)).astype("f4"))
    neighbours = Neighbours(without=rows[:-1], with_record=rows, relation="add_remove")
    step = callable_step(seeded_before_every_step, releases="transcript")
    again, same, *_ = explain(step, neighbours, key=KEY, noise_multiplier=steps.NOISE).findings
    line = (__file__, seeded_before_every_step.__code__.co_firstlineno + 6)
    assert (again.kind, again.lines[0]) == ("key_used_twice", line)
    assert (same.kind, same.lines[0]) == ("released_without_noise", line)
    assert "the same in every run and hides nothing" in same.says


def initial_weights_of_one_seed(dataset, seed, *, later=False):
    torch.manual_seed(0)
    weights = torch.nn.Linear(steps.COLUMNS, 1, bias=False)
    optimizer = torch.optim.SGD(weights.parameters(), lr=0.1)
    if later:
        torch.manual_seed(0)
    weights.weight.grad = noisy(dataset)[None]
    optimizer.step()


def noise_of_one_seed(dataset, seed):
    initial_weights_of_one_seed(dataset, seed, later=True)


@pytest.mark.parametrize("train", [initial_weights_of_one_seed, noise_of_one_seed], ids=lambda train: train.__name__)
def test_a_fixed_seed_of_the_initial_weights_is_no_fault_and_one_of_the_noise_is(train):
    rows = torch.tensor(np.random.default_rng(2).normal(size=(6, steps.COLUMNS)).astype("f4"))
    neighbours = Neighbours(without=rows[:-1], with_record=rows, relation="add_remove")
    training = torch_training(train, releases="update")
    kinds = [found.kind for found in explain(training, neighbours, key=KEY, noise_multiplier=steps.NOISE).findings]
    assert kinds == (["released_without_noise"] if train is noise_of_one_seed else [])


OPACUS = {
    "sum": {"loss_reduction": "sum"},
    "mean, no floor": {},
    "ghost": {"grad_sample_mode": "ghost"},
    "fast": {"grad_sample_mode": "fast"},
    "functorch": {"grad_sample_mode": "functorch"},
    "per layer": {"clipping": "per_layer", "layers": 2},
    "split": {"physical_batch": 2},
}


def opacus():
    """Opacus, or the test is skipped."""
    return pytest.importorskip("opacus", reason="Opacus is not installed: pip install dpsgd-audit[opacus]")


def opacus_explained(records, **settings):
    opacus()
    step = opacus_step(batch_size=4, clip=1.0, noise_multiplier=2.0, **settings)
    neighbours = worst_case_pair(records=records, dimension=8, clip=1.0)
    return explain(step, neighbours, key=KEY, noise_multiplier=2.0)


@pytest.mark.few(3)
@pytest.mark.parametrize("settings", OPACUS.values(), ids=OPACUS)
def test_opacus_stays_silent_where_its_divisor_does_not_change(settings):
    told = opacus_explained(10, **settings)
    assert not told.findings
    assert all(one.multiplier >= 1.99 for one in told.rounds)
    assert told.rounds


def test_the_divisor_of_opacus_is_found_in_its_own_file():
    optimizer = opacus().optimizers.optimizer
    source, start = inspect.getsourcelines(optimizer.DPOptimizer.scale_grad)
    divides = start + next(number for number, text in enumerate(source) if "p.grad /=" in text)
    (told,) = opacus_explained(11).findings
    assert told.kind == "changed_after_release"
    assert told.lines == ((optimizer.__file__, divides),)


def written_over(seed, data, write):
    """Noise of which a part is written over before it is added."""
    torch.manual_seed(seed)
    noise = steps.noise()
    write(noise)
    return steps.clipped(steps.gradients(steps.START, *data)).sum(0) + noise


LAST = torch.arange(steps.COLUMNS) == steps.COLUMNS - 1
ZEROED = {
    "a number": lambda noise: noise[-1:].fill_(0.0),
    "zero_": lambda noise: noise[-1:].zero_(),
    "a tensor": lambda noise: noise[-1:].copy_(torch.zeros(1)),
    "a mask": lambda noise: noise.masked_fill_(LAST, 0.0),
    "an index": lambda noise: noise.index_put_((LAST,), torch.zeros(())),
}


@pytest.mark.parametrize("way", ZEROED)
def test_noise_that_is_written_over_covers_nothing(way):
    told = explained(functools.partial(written_over, write=ZEROED[way]), noise_multiplier=steps.NOISE).findings
    assert [one.kind for one in told] == ["released_without_noise"], told
    assert "1 of 5 coordinates" in told[0].says
    assert told[0].lines[0] == (__file__, ZEROED[way].__code__.co_firstlineno)


def drawn_in_parts(seed, data):
    torch.manual_seed(seed)
    noise = torch.zeros(steps.COLUMNS)
    noise[:2] = steps.CLIP * steps.NOISE * torch.randn(2)
    noise[2:] = steps.CLIP * steps.NOISE * torch.randn(steps.COLUMNS - 2)
    return steps.clipped(steps.gradients(steps.START, *data)).sum(0) + noise


def written_where_nothing_moves(seed, data):
    torch.manual_seed(seed)
    noise = steps.noise()
    noise[-1] = 0.0
    total = steps.clipped(steps.gradients(steps.START, *data)).sum(0)
    return torch.where(LAST, torch.zeros(()), total) + noise


@pytest.mark.parametrize("step", [drawn_in_parts, written_where_nothing_moves])
def test_noise_in_parts_is_no_fault(step):
    told = explained(step, noise_multiplier=steps.NOISE)
    assert not told.findings, told.findings[0].says


def cubed_noise(seed, data):
    torch.manual_seed(seed)
    return steps.clipped(steps.gradients(steps.START, *data)).sum(0) + steps.noise() ** 3


def test_noise_whose_deviation_is_unknown_is_not_judged():
    told = explained(cubed_noise, noise_multiplier=steps.NOISE)
    assert not told.suspicions
    source, start = inspect.getsourcelines(cubed_noise)
    line = start + next(number for number, text in enumerate(source) if "** 3" in text)
    assert f"where it is added, beyond test_explain_torch.py:{line}." in told.not_judged[0].says


def numpy_noise(seed, data):
    torch.manual_seed(seed)
    drawn = np.random.default_rng(seed).normal(size=steps.COLUMNS).astype("f4")
    return steps.clipped(steps.gradients(steps.START, *steps.poisson(data))).sum(0) + torch.from_numpy(drawn)


def numpy_alone(seed, data):
    return np.asarray(data[0]).sum(0) + np.random.default_rng(seed).normal(size=steps.COLUMNS)


def fails(seed, data):
    raise RuntimeError("no such file")


def noise_of_every_record(seed, data):
    """Each brings a share, twice."""
    torch.manual_seed(seed)
    weights = steps.START.clone()
    for _ in range(2):
        rows = steps.clipped(steps.gradients(weights, *data))
        rows = rows + steps.CLIP * steps.NOISE * torch.randn(rows.shape) / len(rows) ** 0.5
        weights = weights - steps.LEARNING * rows.sum(0)
    return weights


def not_known_to_the_replay(seed, data):
    """Fails where operations are watched, and nowhere else."""
    if torch.utils._python_dispatch._get_current_dispatch_mode_stack():
        raise RuntimeError("no watchers")
    return numpy_noise(seed, data)


OWN_ERROR = f"your own code raises an error at test_explain_torch.py:{fails.__code__.co_firstlineno + 1}: RuntimeError"


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (noise_of_every_record, "came there by "),
        (numpy_noise, "no PyTorch generator"),
        (numpy_alone, "draws with neither PyTorch nor JAX"),
        (fails, OWN_ERROR),
        (not_known_to_the_replay, "it could not be followed at"),
    ],
)
def test_what_is_not_followed_is_not_judged(step, why):
    (told,) = explained(step, noise_multiplier=1.5).findings
    assert told.kind == "not_followed"
    assert why in told.says


def test_a_generator_is_left_as_it_was_found():
    """Explaining is no trial: whoever draws next gets the number that came next."""
    state = torch.get_rng_state()
    explained(steps.half_noise)
    assert torch.equal(torch.get_rng_state(), state)


def training_explained(train, records=11, releases="final"):
    if train is steps.with_opacus:
        opacus()
    given = pair(records)
    sides = (torch.utils.data.TensorDataset(*side) for side in (given.without, given.with_record))
    neighbours = Neighbours(**dict(zip(("without", "with_record"), sides, strict=True)), relation="add_remove")
    return explain(torch_training(train, releases=releases), neighbours, key=KEY, noise_multiplier=steps.NOISE)


def two_optimizers(dataset, seed):
    torch.manual_seed(seed)
    model = torch.nn.Linear(steps.COLUMNS, 1)
    whole, part = torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD([model.bias], 0.1)
    for optimizer in (whole, part):
        model(dataset.tensors[0]).sum().backward()
        optimizer.step()
    return model


def test_what_the_audit_refuses_is_not_called_an_error_of_the_code():
    (told,) = training_explained(two_optimizers, releases="transcript").findings
    assert told.says.startswith("Not judged: the optimizers of this training step on different parameters")
    assert "releases='final' (at test_explain_torch.py:" in told.says


def reseeded_by_hand(data, seed):
    """A loop with a module and no optimizer, whose every round starts from one seed."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(steps.COLUMNS, 1, bias=False)
    for _ in range(2):
        torch.manual_seed(1234)
        x, y = data.tensors
        model(x)
        rows = steps.clipped(steps.gradients(model.weight.detach()[0], x, y))
        model.weight.data -= steps.LEARNING * (rows.sum(0) + steps.CLIP * steps.NOISE * torch.randn(steps.COLUMNS))
    return model


def test_a_loop_without_an_optimizer_has_no_steps_to_explain():
    (told,) = training_explained(reseeded_by_hand, releases="transcript").findings
    assert told.kind == "not_followed"
    assert told.says.endswith("if your loop updates weights by hand, audit what it returns: releases='final'.")
    assert not told.lines


def test_noise_that_every_trial_shares_is_laid_to_the_seed_that_makes_it_so():
    line = (__file__, reseeded_by_hand.__code__.co_firstlineno + 5)
    told = training_explained(reseeded_by_hand).findings
    assert {finding.lines[0] for finding in told} == {line}
    assert "released_without_noise" in {finding.kind for finding in told}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("train", "releases"),
    [
        (steps.with_opacus, "final"),
        (steps.with_opacus, "transcript"),
        (steps.by_hand, "final"),
        (steps.by_hand, "update"),
    ],
)
def test_right_trainings_stay_silent(train, releases):
    told = training_explained(train, releases=releases)
    assert not told.findings
    assert len(told.rounds) == {"update": 1, "final": 2 + (train is steps.with_opacus), "transcript": 3}[releases]
    assert all(one.multiplier == pytest.approx(steps.NOISE, rel=0.01) for one in told.rounds)


@pytest.mark.long
@pytest.mark.parametrize("shuffled", [True, False])
def test_batches_that_hold_other_records_are_not_called_clipped_after_the_sum(shuffled):
    right = training_explained(functools.partial(steps.two_batches, shuffled=shuffled), records=8)
    assert not right.suspicions
    assert not right.rounds
    assert "differ in more than the one record" in right.not_judged[0].says
    wrong = training_explained(functools.partial(steps.two_batches, shuffled=shuffled, clip_sum=True), records=8)
    assert [one.kind for one in wrong.findings] == ["clipped_after_sum"]
    source, start = inspect.getsourcelines(steps.two_batches)
    line = start + next(number for number, text in enumerate(source) if "length = " in text)
    assert (inspect.getsourcefile(steps.two_batches), line) in wrong.findings[0].lines


def test_the_last_records_of_a_stacked_copy_are_another_batch():
    told = training_explained(steps.last_records, records=8)
    assert not told.suspicions, told.suspicions[0].says
    assert "differ in more than the one record" in told.not_judged[0].says


def test_another_number_of_steps_is_no_other_tensor():
    told = training_explained(steps.with_opacus, records=9, releases="transcript").not_judged[0].says
    assert "takes 2 steps without the record and 3 with it" in told, told


@pytest.mark.long
def test_noise_of_an_optimizers_own_step_is_seen():
    assert not training_explained(steps.by_subclass, releases="update").suspicions
    told = training_explained(steps.half_noise_by_subclass, releases="update").findings
    assert [one.kind for one in told] == ["too_little_noise"]


def test_a_training_is_told_its_lines():
    source, start = inspect.getsourcelines(steps.with_opacus)
    made, step = (
        start + next(number for number, text in enumerate(source) if such in text)
        for such in ("make_private(", "optimizer.step()")
    )
    told = training_explained(steps.with_opacus, records=12).findings[0]
    assert told.kind == "changed_after_release"
    assert told.lines[0] == (steps.__file__, made), "there Opacus computes the divisor"
    assert (steps.__file__, step) in told.lines
    assert told.lines[-1][0].endswith("optimizer.py")
    source, start = inspect.getsourcelines(steps.by_hand)
    mixes = start + next(number for number, text in enumerate(source) if "net.norm(x)" in text)
    told = training_explained(steps.normalised_by_hand).findings[0]
    assert told.kind == "records_mixed_before_sum"
    assert (steps.__file__, mixes) in told.lines
    path, made = told.lines[0]
    assert "BatchNorm" in linecache.getline(path, made)


def test_a_rate_that_changes_with_the_number_of_records_is_named():
    """From 4 to 5 batches of 4: Opacus samples at 1/4 and at 1/5."""
    told = opacus_explained(16, loss_reduction="sum").findings[0]
    assert told.kind == "randomness_from_data"
    assert "at rates 0.25 and 0.2" in told.says
    assert told.lines[0][0].endswith("uniform_sampler.py")


@pytest.mark.parametrize("name", ["noise_by_the_number_of_records", "noise_by_the_largest"])
def test_noise_scaled_by_records_is_named_where_the_scale_is_computed(name):
    step = getattr(helped, name)
    found = explain(callable_step(step), helped.pair(), key=KEY, noise_multiplier=helped.NOISE).findings[0]
    source, start = inspect.getsourcelines(step)
    (line,) = [start + offset for offset, text in enumerate(source) if "# BUG" in text]
    assert (found.kind, found.lines[0]) == ("noise_scale_from_data", (helped.__file__, line)), found


def test_leaves_that_the_clipping_leaves_out_are_named():
    told = explain(callable_step(helped.biases_not_clipped), helped.pair(), key=KEY, noise_multiplier=helped.NOISE)
    (found,) = told.findings
    assert found.kind == "not_clipped"
    assert " for " in found.says
    assert "bias" in found.says
    assert "weight" not in found.says
    clips = helped.clip_weights.__code__.co_firstlineno + 2
    assert found.lines[0] == (helped.__file__, clips)
    assert f"(others are bounded at helped_torch.py:{clips}, and this one is not)" in found.says
    right = explain(callable_step(helped.right), helped.pair(), key=KEY, noise_multiplier=helped.NOISE)
    assert right.findings == ()


def test_lines_of_an_installed_toolkit_are_nobodys(monkeypatch):
    from mechanisms.adapters.pytorch.replay import stacks

    installed = "/home/me/venv/lib/python3.13/site-packages/"
    monkeypatch.setattr(stacks, "__file__", f"{installed}mechanisms/adapters/pytorch/replay/stacks.py")
    told = stacks.told.__wrapped__
    assert not told(f"{installed}mechanisms/adapters/callable_step/run.py")
    assert told(f"{installed}opacus/optimizers/optimizer.py")
    assert told("/home/me/train.py")


def _noisy(total, deviation):
    return total + deviation * torch.randn(total.shape)


def scale_handed_over(seed, data):
    torch.manual_seed(seed)
    x, _ = data
    total = (x / x.norm(dim=1, keepdim=True).clamp(min=1.0)).sum(dim=0)
    return _noisy(total, 0.5)


def test_the_call_that_hands_over_the_noises_scale_stands_before_the_helper():
    (found,) = explained(scale_handed_over, noise_multiplier=1.0).findings
    lines, start = inspect.getsourcelines(scale_handed_over)
    assert found.lines[0] == (__file__, start + len(lines) - 1)
    assert found.says.count("(called at ") == 1


@pytest.mark.parametrize("rounds", [1, 2])
def test_tensors_of_one_release_that_raw_data_scales_are_one_round(rounds):
    def scaled(seed, data):
        torch.manual_seed(seed)
        weights = steps.START.clone()
        for _ in range(rounds):
            given = steps.gradients(weights, *data)
            length, total = given.norm(dim=1).median(), steps.clipped(given).sum(0)
            halves = [(half + steps.CLIP * steps.NOISE * torch.randn(len(half))) / length for half in total.split(3)]
            weights = weights - steps.LEARNING * torch.cat(halves)
        return weights

    told = explained(scaled, clip=steps.CLIP, noise_multiplier=steps.NOISE)
    assert [one.kind for one in told.findings] == ["changed_after_release"]
    assert [one.number for one in told.rounds] == list(range(1, rounds + 1))
