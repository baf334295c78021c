from __future__ import annotations

import sys
import types
import warnings

import numpy as np
import pytest
from checks import FALSE_FAILURE
from scipy import stats

import distinguishers
import guarantees
import mechanisms
from audit.record.environment import seen_of_both
from audit.trials.both_sides import both_sides
from mechanisms.adapters.pytorch.for_torch import torch_training
from mechanisms.adapters.pytorch.opacus_claims import (
    NotPoissonWarning,
    UnequalDivisorsWarning,
    UnequalRatesWarning,
    unequal,
)
from mechanisms.adapters.pytorch.record_gradients import one_record
from mechanisms.adapters.trial_seeds import trial_seeds

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")
opacus = pytest.importorskip("opacus", reason="Opacus is not installed: pip install dpsgd-audit[opacus]")

from opacus.accountants.utils import get_noise_multiplier  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

CLIP, NOISE, BATCH, COLUMNS = 0.5, 2.0, 4, 6
SEEDS = trial_seeds(np.array([5, 6], np.uint32), 0, 16)


def dataset(records, value=0.0):
    """Zero rows: every gradient of a model without bias is zero, and an update is noise alone."""
    return TensorDataset(torch.full((records, COLUMNS), value), torch.zeros(records, dtype=torch.long))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(COLUMNS, 20, bias=False), nn.Linear(20, 2, bias=False))

    def forward(self, x):
        return self.layers(x)


def private(data, *, optimizer=torch.optim.Adam, model=None, batch=BATCH, **settings):
    model = Net() if model is None else model
    loader = DataLoader(data, batch_size=batch, shuffle=True)
    return opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer(model.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        **settings,
    )


def train(data, seed):
    model, optimizer, loader = private(data)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def train_sgd(data, seed):
    model, optimizer, loader = private(data, optimizer=torch.optim.SGD)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def train_ghost(data, seed):
    model, optimizer, criterion, loader = private(data, grad_sample_mode="ghost", criterion=nn.CrossEntropyLoss())
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


def train_split(data, seed):
    model, optimizer, loader = private(data)
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=1, optimizer=optimizer) as physical:
        for x, y in physical:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def train_bfloat16(data, seed):
    model, optimizer, loader = private(data)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


def train_adaptive(data, seed):
    bounds = {"max_clipbound": 10.0, "min_clipbound": 0.1, "clipbound_learning_rate": 0.2}
    quantile = {"target_unclipped_quantile": 0.5, "unclipped_num_std": 1e6}
    model, optimizer, loader = private(data, clipping="adaptive", poisson_sampling=False, **bounds, **quantile)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        return


def train_microbatches(data, seed):
    """Two batches of the loader for one step, which Opacus allows without Poisson sampling."""
    model, optimizer, loader = private(data, poisson_sampling=False)
    optimizer.zero_grad()
    for number, (x, y) in enumerate(loader):
        nn.functional.cross_entropy(model(x), y).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()


def flat(outputs):
    return np.concatenate([part.reshape(len(part), -1) for part in outputs.values()], axis=1)


def drawn(function, records=11, seeds=SEEDS, releases="update", **more):
    return torch_training(function, releases=releases, **more).prepare(dataset(records))(seeds)


def assert_noise_is(found, deviation):
    rest = found.ravel() / deviation
    p = 2 * min(stats.chi2.cdf(np.sum(rest**2), rest.size), stats.chi2.sf(np.sum(rest**2), rest.size))
    assert p > FALSE_FAILURE, f"noise {rest.std() * deviation} where {deviation} was expected, p = {p:.1e}"


LOOPS = [
    # 11 records in batches of 4: rate 1/3, divided by int(11/3)
    (train, 3, (NOISE, 1 / 3), CLIP * NOISE / 3),
    (train_sgd, 3, (NOISE, 1 / 3), CLIP * NOISE / 3),
    (train_ghost, 3, (NOISE, 1 / 3), CLIP * NOISE / 3),
    (train_split, 3, (NOISE, 1 / 3), CLIP * NOISE / 3),
    (train_bfloat16, 3, (NOISE, 1 / 3), CLIP * NOISE / 3),
    (train_adaptive, 1, (NOISE, 1 / 3), CLIP * NOISE / 3),
    (train_microbatches, 1, (NOISE, 2 / 3), CLIP * NOISE / 6),
]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("function", "steps", "entry", "deviation"), LOOPS, ids=lambda given: getattr(given, "__name__", "")
)
def test_a_loop_as_users_write_it_is_watched(function, steps, entry, deviation):
    found = drawn(function, releases="transcript")
    assert {name: part.shape for name, part in found.items()} == {
        "layers.0.weight": (len(SEEDS), steps, 20, COLUMNS),
        "layers.1.weight": (len(SEEDS), steps, 2, 20),
    }
    assert_noise_is(flat(found), deviation)
    assert torch_training(function, releases="transcript").history(dataset(11)) == [(*entry, steps)]
    first = drawn(function)
    assert np.array_equal(flat(first), flat({name: part[:, 0] for name, part in found.items()}))
    assert torch_training(function).history(dataset(11)) == [(*entry, 1)]


def test_the_check_of_the_noise_can_fail():
    with pytest.raises(AssertionError, match="was expected"):
        assert_noise_is(flat(drawn(train)), 1.1 * CLIP * NOISE / 3)


@pytest.mark.few(2)
@pytest.mark.parametrize("releases", ["update", "transcript", "final"])
def test_a_trial_is_a_function_of_its_seed(releases):
    found = flat(drawn(train, releases=releases))
    again = flat(drawn(train, releases=releases, seeds=SEEDS[10:12]))
    assert np.array_equal(found[10:12], again)
    assert len(np.unique(found[:, 0])) == len(SEEDS)


def test_initial_weights_are_the_same_however_users_seed():
    seen = []

    def seeding(data, seed):
        torch.manual_seed(seed)
        torch.rand(len(data))
        model, optimizer, _ = private(data, model=Net())
        seen.append([p.detach().clone() for p in model.parameters()] + [torch.randn(3)])
        optimizer.original_optimizer.step()

    for records in (10, 11):
        drawn(seeding, records=records, seeds=SEEDS[:2])
    first, *others = seen
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first[:-1], other[:-1], strict=True))
    assert len({float(one[-1][0]) for one in seen}) == 2, "what follows the optimizer follows the trial"
    assert not torch.equal(first[0][0], first[0][1]), "rows of one layer are drawn, not copied"


def test_a_generator_that_users_seed_is_not_the_stream_of_the_noise():
    found = []

    def own_generator(data, seed):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        own = torch.randn(4, generator=torch.Generator().manual_seed(seed))
        found.append((own, torch.randn(4), np.random.rand(2)))  # noqa: NPY002
        optimizer.step()

    drawn(own_generator, seeds=SEEDS[:3])
    assert all(not torch.equal(own, ours) for own, ours, _ in found)
    assert len({float(ours[0]) for _, ours, _ in found}) == len({float(n[0]) for _, _, n in found}) == 3


def test_what_is_handed_over_wrongly_is_refused_by_name():
    pair = mechanisms.add_record(dataset(10), dataset(1, 1.0)[0])
    with pytest.raises(TypeError, match=r"train must be a function of a dataset and a seed, .*got the model Linear"):
        torch_training(nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"claim\(pair\) reads both datasets of a pair, got TensorDataset"):
        torch_training(train).claim(dataset(10))
    with pytest.raises(TypeError, match=r"history\(dataset\) reads one dataset, got a pair"):
        torch_training(train).history(pair)


def test_a_model_that_trials_share_is_refused():
    shared = Net()

    def goes_on(data, seed):
        optimizer = torch.optim.SGD(shared.parameters(), lr=0.1)
        for p in shared.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()

    with pytest.raises(ValueError, match=r"train one model.* must build a new model"):
        drawn(goes_on, releases="final", seeds=SEEDS[:2])


def test_the_generators_of_the_process_are_left_as_they_were():
    torch.default_generator.manual_seed(7)
    expected = torch.rand(2)
    torch.default_generator.manual_seed(7)
    drawn(train, seeds=SEEDS[:1])
    assert torch.equal(torch.rand(2), expected)


def test_nothing_is_left_behind_after_an_error():
    before = nn.Module.__init__, torch.optim.Optimizer.__init__

    def failing(data, seed):
        private(data)
        raise RuntimeError("theirs")

    with pytest.raises(RuntimeError, match="theirs"):
        drawn(failing)
    assert (nn.Module.__init__, torch.optim.Optimizer.__init__) == before
    from torch.nn.modules import module
    from torch.optim import optimizer

    assert not module._global_forward_pre_hooks
    assert not optimizer._global_optimizer_pre_hooks


def test_final_weights_are_released_from_their_start():
    def two_steps(data, seed):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(2):
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            optimizer.step()
        return model

    def with_buffer(data, seed):
        model = two_steps(data, seed)
        model.register_buffer("mean_of_inputs", data.tensors[0].mean(0))
        return model, "log"

    assert np.allclose(flat(drawn(two_steps, releases="final", seeds=SEEDS[:2])), 1.0)
    found = drawn(with_buffer, releases="final", seeds=SEEDS[:2])
    assert found["mean_of_inputs"].shape == (2, COLUMNS)


def test_two_optimizers_release_their_end():
    def two(data, seed):
        models = Net(), nn.Linear(2, 1)
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.5) for model in models]
        for model, optimizer in zip(models, optimizers, strict=True):
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            optimizer.step()

    assert np.allclose(flat(drawn(two, releases="final", seeds=SEEDS[:2])), 0.5)
    with pytest.raises(ValueError, match="releases='final'"):
        drawn(two, releases="transcript", seeds=SEEDS[:2])


def test_whatever_else_is_given_back_is_the_release():
    def metrics(data, seed):
        return {"loss": torch.randn(()), "weights": [np.ones(3), torch.zeros(2, dtype=torch.bfloat16)]}

    found = torch_training(metrics, releases="final").prepare(dataset(3))(SEEDS[:4])
    assert {part.shape for part in found.values()} == {(4,), (4, 3), (4, 2)}


def test_a_loop_without_an_optimizer_is_told_what_to_do():
    def by_hand(data, seed):
        return Net()(data.tensors[0])

    with pytest.raises(ValueError, match="cannot see where its training"):
        drawn(lambda data, seed: nn.Linear(COLUMNS, 1).forward(data.tensors[0]), releases="final")
    with pytest.raises(ValueError, match="releases='final'"):
        drawn(by_hand)
    with pytest.raises(ValueError, match="the training releases nothing"):
        drawn(lambda data, seed: None, releases="final")


def train_by_hand(data, seed):
    """A hand-written Poisson loop: an empty batch calls no module."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        x, y = (column[torch.rand(len(column)) < 0.1] for column in data.tensors)
        optimizer.zero_grad()
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        for one, label in zip(x, y, strict=False):
            nn.functional.cross_entropy(model(one[None]), label[None]).backward()
        for p in model.parameters():
            p.grad += torch.randn(p.shape)
        optimizer.step()


@pytest.mark.parametrize("releases", ["update", "transcript", "final"])
def test_tensors_have_the_names_of_the_module_tree_though_a_batch_is_empty(releases):
    assert drawn(train_by_hand, releases=releases).keys() == {"layers.0.weight", "layers.1.weight"}


def test_tensors_of_several_models_have_names_of_their_own():
    def two(data, seed):
        models = Net(), Net()
        optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.5)
        for p in models[1].parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()

    layers = ["layers.0.weight", "layers.1.weight"]
    assert list(drawn(two, seeds=SEEDS[:2])) == [*layers, *(f"module_1.{name}" for name in layers)]


def test_forms_that_differ_are_named():
    def by_luck(data, seed):
        return {"weights": np.zeros(3)} | ({"extra": np.zeros(2)} if seed % 2 else {})

    def by_steps(data, seed):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(1 + seed % 2):
            optimizer.step()

    seeds = np.array([2, 3], np.uint64)
    with pytest.raises(ValueError, match="releases extra, which the first trial does not"):
        drawn(by_luck, releases="final", seeds=seeds)
    with pytest.raises(ValueError, match="steps= ends a transcript early"):
        drawn(by_steps, releases="transcript", seeds=seeds)


def test_steps_end_a_transcript():
    assert drawn(train, releases="transcript", steps=2, seeds=SEEDS[:2])["layers.1.weight"].shape == (2, 2, 2, 20)
    with pytest.raises(ValueError, match="took 3 steps"):
        drawn(train, releases="transcript", steps=4)
    with pytest.raises(ValueError, match="steps must be"):
        torch_training(train, steps=2)


PAIR = mechanisms.Neighbours(without=dataset(10), with_record=dataset(11), relation="add_remove")
UNLIKE = mechanisms.Neighbours(without=dataset(8), with_record=dataset(9), relation="add_remove")


def test_the_claim_is_their_history_judged_exactly():
    step = torch_training(train).claim(PAIR)
    exact = guarantees.subsampled_gaussian(rate=1 / 3, noise_multiplier=NOISE)
    assert np.allclose(step.beta([0.01, 0.3]), exact.beta([0.01, 0.3]), atol=1e-9)
    assert (step.unit, step.parameters["history"]) == ("step", ((NOISE, 1 / 3, 1),))
    for releases in ("transcript", "final"):
        claim = torch_training(train, releases=releases).claim(PAIR)
        assert (claim.unit, claim.parameters["history"]) == ("training", ((NOISE, 1 / 3, 3),))
    assert "Opacus 1" in step.source


def test_the_claim_may_be_the_epsilon_that_they_print():
    printed = torch_training(train, releases="transcript").claim(PAIR, deltas=(1e-5,))
    exact = torch_training(train, releases="transcript").claim(PAIR)
    assert exact.epsilon(1e-5) <= printed.epsilon(1e-5) <= exact.epsilon(1e-5) + 0.1


@pytest.mark.few(1)
@pytest.mark.parametrize("deltas", [None, (1e-5,)])
def test_a_dataset_of_whole_batches_is_warned_about(deltas):
    """8 records in batches of 4, and one more: 2 batches become 3, and both the rate and the divisor change."""
    with pytest.warns(UnequalRatesWarning, match="0.5 without the record, 0.3333 with it") as seen:
        claim = torch_training(train).claim(UNLIKE, deltas=deltas)
    assert seen[0].filename == __file__
    assert "multiple of the batch" in claim.source


def test_outside_of_tests_a_pair_is_warned_about_once(monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    said = "Opacus samples at 1/len(loader)"
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for rates in ((0.21, 0.22), (0.21, 0.22), (0.21, 0.23)):
            assert said in unequal(rates, stacklevel=1), "the claim's source says it each time"
    assert [said in str(one.message) for one in found] == [True, True]


def test_loaders_of_one_length_need_no_warning(recwarn):
    assert "multiple of the batch" not in torch_training(train).claim(PAIR).source
    assert not [each for each in recwarn if issubclass(each.category, UnequalRatesWarning)]


@pytest.mark.few(1)
@pytest.mark.parametrize("deltas", [None, (1e-5,)])
def test_a_divisor_that_changes_is_warned_about(deltas):
    """11 and 12 records are 3 batches of 4 either way: the rate stays, and int(N / 3) goes from 3 to 4."""
    pair = mechanisms.Neighbours(without=dataset(11), with_record=dataset(12), relation="add_remove")
    with pytest.warns(UnequalDivisorsWarning, match="size 3, .* without the record, .*size 4, .* with it") as seen:
        claim = torch_training(train).claim(pair, deltas=deltas)
    assert seen[0].filename == __file__
    assert "divides by" in claim.source
    both = seen_of_both(torch_training(train), pair)["divisor"]
    mean = "loss_reduction mean"
    assert both == f"expected_batch_size 3, {mean} without the record; expected_batch_size 4, {mean} with it"


def test_what_is_told_and_contradicted_by_opacus_is_warned_about(recwarn):
    right = torch_training(train, clip=CLIP, noise_multiplier=NOISE)
    assert "contradicted" not in right.seen_on(dataset(10))
    assert not [each for each in recwarn if "is told" in str(each.message)]
    with pytest.warns(UserWarning, match="clip=9 is told, .*; noise_multiplier=0.2 is told"):
        seen = torch_training(train, clip=9.0, noise_multiplier=0.2).seen_on(dataset(10))
    assert f"max_grad_norm of Opacus's optimizer is {CLIP:g}" in seen["contradicted"]


def train_shuffled(data, seed):
    model, optimizer, loader = private(data, poisson_sampling=False)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def train_and_evaluate(data, seed):
    """What is read in order beside Poisson batches are no batches of the training."""
    model = train(data, seed)
    for x, _ in DataLoader(data, batch_size=BATCH):
        model(x)


@pytest.mark.few(1)
@pytest.mark.parametrize("deltas", [None, (1e-5,)])
def test_batches_that_are_not_poisson_are_warned_about(deltas):
    """The claim was Poisson's, without a word, for a loader that goes through the dataset."""
    training = torch_training(train_shuffled, releases="transcript")
    with pytest.warns(
        NotPoissonWarning, match="assumes Poisson batches, and train_shuffled reads batches of 4"
    ) as seen:
        claim = training.claim(PAIR, deltas=deltas)
    assert seen[0].filename == __file__
    assert claim.source.endswith("batches of 4, shuffled (RandomSampler)")
    assert seen_of_both(training, PAIR)["sampler"] == "batches of 4, shuffled (RandomSampler)"


@pytest.mark.filterwarnings("error::mechanisms.adapters.pytorch.opacus_claims.NotPoissonWarning")
@pytest.mark.parametrize("own", [train, train_and_evaluate])
def test_poisson_batches_need_no_warning(own):
    assert "assumes Poisson" not in torch_training(own, releases="final").claim(PAIR).source


def train_and_ask(data, seed):
    """The search of make_private_with_epsilon makes an accountant of its own, and PRV's answer takes two of RDP."""
    get_noise_multiplier(
        target_epsilon=8.0, target_delta=1e-3, sample_rate=1 / 3, steps=3, accountant="rdp", epsilon_tolerance=8.0
    )
    model = Net()
    optimizer, loader = torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=BATCH)
    engine = opacus.PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=NOISE, max_grad_norm=CLIP
    )
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert engine.accountant.get_epsilon(1e-3, eps_error=1.0) > 0


def test_accountants_that_opacus_makes_for_an_answer_count_no_steps():
    assert torch_training(train_and_ask, releases="transcript").history(dataset(11)) == [(NOISE, 1 / 3, 3)]


@pytest.mark.filterwarnings("ignore::mechanisms.adapters.pytorch.opacus_claims.UnequalRatesWarning")
def test_the_weaker_of_two_accounts_is_the_claim():
    assert torch_training(train).history(UNLIKE.without) == [(NOISE, 1 / 2, 1)]
    assert torch_training(train).history(UNLIKE.with_record) == [(NOISE, 1 / 3, 1)]
    assert torch_training(train).claim(UNLIKE).parameters["history"] == ((NOISE, 1 / 2, 1),)


def test_a_training_without_an_account_has_no_claim_of_its_own():
    with pytest.raises(ValueError, match="claim_from_history"):
        torch_training(lambda data, seed: Net()).claim(PAIR)


def the_given_optimizer_steps(data, seed):
    model = Net()
    given, loader = torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=BATCH)
    model, _, loader = opacus.PrivacyEngine().make_private(
        module=model, optimizer=given, data_loader=loader, noise_multiplier=NOISE, max_grad_norm=CLIP
    )
    given.step()
    return model


def test_an_account_without_a_step_asks_which_optimizer_steps():
    with pytest.raises(ValueError, match="the one that make_private was given"):
        torch_training(the_given_optimizer_steps).claim(PAIR)


def secure(data, seed):
    model = Net()
    optimizer, loader = torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=BATCH)
    engine = opacus.PrivacyEngine(secure_mode=True)
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=NOISE, max_grad_norm=CLIP
    )
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def test_secure_mode_says_what_it_lacks(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchcsprng", None)
    with pytest.raises(ImportError, match="audit with secure_mode=False"):
        drawn(secure)


def test_secure_mode_is_audited_where_its_generator_is_there(monkeypatch):
    """A generator of random bytes under torchcsprng's name: it has no build for this PyTorch."""
    library = types.ModuleType("torchcsprng")
    library.create_random_device_generator = lambda _: torch.Generator().manual_seed(int(SEEDS[0]) % 2**32)
    monkeypatch.setitem(sys.modules, "torchcsprng", library)
    assert_noise_is(flat(drawn(secure, seeds=SEEDS[:1])), CLIP * NOISE / 3)


def test_versions_are_part_of_what_a_record_says():
    said = torch_training(train, releases="transcript", steps=2).parameters
    # a build's suffix, such as +cu130, is part of torch.__version__ and not always of what was installed
    said["torch"], installed = (version.partition("+")[0] for version in (said["torch"], torch.__version__))
    assert said.pop("train").endswith("test_torch:train")
    assert said == {"steps": 2, "torch": installed, "opacus": opacus.__version__}


@pytest.mark.parametrize("function", [train, train_split, train_ghost], ids=lambda given: given.__name__)
def test_gradients_are_those_of_the_records_at_the_initial_weights(function):
    torch.default_generator.manual_seed(0)
    data = TensorDataset(torch.randn(3, COLUMNS), torch.tensor([0, 1, 1]))
    found = flat(torch_training(function).gradients(data))
    starts = []

    def start(data, seed):
        if function is train_ghost:
            nn.CrossEntropyLoss()
        starts.append(Net())
        torch.optim.SGD(starts[0].parameters()).step()

    drawn(start, seeds=SEEDS[:1])
    for row, x, y in zip(found, *data.tensors, strict=True):
        loss = nn.functional.cross_entropy(starts[0](x[None]), y[None])
        exact = torch.cat([g.ravel() for g in torch.autograd.grad(loss, list(starts[0].parameters()))]).numpy()
        scale = min(1.0, CLIP / np.linalg.norm(exact)) if function is train_ghost else 1.0
        assert np.allclose(row, scale * exact, atol=1e-5)


@pytest.mark.parametrize("function", [train, train_ghost], ids=lambda given: given.__name__)
def test_gradients_by_a_loss_are_those_of_opacus(function):
    torch.default_generator.manual_seed(0)
    data = TensorDataset(torch.randn(3, COLUMNS), torch.tensor([0, 1, 1]))
    seen = flat(torch_training(function).gradients(data))
    by_loss = flat(torch_training(function, loss=nn.functional.cross_entropy).gradients(data))
    if function is train_ghost:
        by_loss = by_loss * np.minimum(1.0, CLIP / np.linalg.norm(by_loss, axis=1, keepdims=True))
    assert np.allclose(seen, by_loss, atol=1e-5)


def test_gradients_have_the_form_of_one_release():
    data = TensorDataset(torch.randn(5, COLUMNS), torch.zeros(5, dtype=torch.long))

    def with_buffer(data, seed):
        model = train(data, seed)
        model.register_buffer("scale", torch.ones(3))
        return model

    one = torch_training(with_buffer).gradients(data)
    assert np.array_equal(flat(one), flat(torch_training(with_buffer, releases="transcript").gradients(data)))
    final = torch_training(with_buffer, releases="final").gradients(data)
    assert not final.pop("scale").any()
    assert np.array_equal(flat(one), flat(final))


def test_records_of_any_dataset_are_taken_one_by_one():
    rows = np.arange(6.0).reshape(3, 2)
    assert np.array_equal(one_record(rows, 1), rows[1:2])
    assert one_record([1, 2, 3], 1) == [2]
    assert np.array_equal(one_record({"x": rows, "y": (rows,)}, 2)["y"][0], rows[2:])
    joined = torch.utils.data.ConcatDataset([dataset(2), dataset(1, value=1.0)])
    ((row, _),) = one_record(joined, 2)
    assert row.sum() == COLUMNS


def test_the_steps_of_a_training_are_counted_where_an_optimizer_takes_them():
    def by_hand(data, seed):
        model = Net()
        model(data.tensors[0]).sum().backward()
        return {"weights": next(model.parameters()).grad}

    final = torch_training(train, releases="final")
    assert final.steps_on(dataset(10)) == sum(steps for _, _, steps in final.history(dataset(10))) > 1
    assert torch_training(train).steps_on(dataset(10)) == 1
    assert torch_training(train, releases="transcript", steps=2).steps_on(dataset(10)) == 2
    assert torch_training(by_hand, releases="final").steps_on(dataset(10)) is None


@pytest.mark.few(2)
@pytest.mark.parametrize("releases", ["update", "transcript", "final"])
def test_the_default_battery_knows_the_record_whatever_is_released(releases):
    pair = mechanisms.add_record(dataset(9, 0.1), (torch.ones(COLUMNS), torch.tensor(1)))
    training = torch_training(train, releases=releases)
    learner = distinguishers.default_battery(pair, mechanism=training)
    layout = both_sides(training, pair).layout()
    own = training.gradients(pair.with_record)
    rows = np.concatenate([np.reshape(own[name], (10, -1)) for name in layout.names], axis=1)
    along = learner.fit.record @ rows[-1] / np.linalg.norm(learner.fit.record) / np.linalg.norm(rows[-1])
    assert learner.dimension == layout.size == rows.shape[1]
    assert along == pytest.approx(1.0)


def train_in_order(data, seed):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=3):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("own", "seen"),
    [
        (
            train,
            {
                "sampler": "Poisson batches at rate 0.3333 (UniformWithReplacementSampler)",
                "divisor": "expected_batch_size 3, loss_reduction mean",
            },
        ),
        (
            train_adaptive,
            {
                "sampler": "batches of 4, shuffled (RandomSampler)",
                "divisor": "expected_batch_size 3, loss_reduction mean",
            },
        ),
        (train_in_order, {"sampler": "batches of 3 in a fixed order (SequentialSampler)"}),
    ],
)
def test_a_run_shows_its_sampler_and_its_divisor(own, seen):
    assert torch_training(own).seen_on(dataset(10)) == seen


def test_opacus_is_seen_if_only_the_training_imports_it_and_never_imported_for_nothing(monkeypatch):
    opacus = sys.modules["opacus"]
    monkeypatch.delitem(sys.modules, "opacus")

    def imports(data, seed):
        sys.modules["opacus"] = opacus
        return train(data, seed)

    assert "divisor" not in torch_training(train_in_order).seen_on(dataset(10))
    assert "opacus" not in sys.modules
    assert torch_training(imports).seen_on(dataset(10))["divisor"].startswith("expected_batch_size 3")


def noised_after_the_step(data, seed):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=3):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.data += torch.randn(parameter.shape)


def fails_after_the_step(data, seed):
    train_in_order(TensorDataset(*data[:3]), seed)
    raise ValueError("no second step")


def test_what_a_run_shows_is_kept_where_it_fails_after_its_step():
    assert "sampler" in torch_training(fails_after_the_step).seen_on(dataset(10))


@pytest.mark.parametrize("records", [3, 10], ids=["one step", "several"])
def test_noise_that_the_loop_adds_after_the_step_is_warned_of(records):
    with pytest.warns(UserWarning, match="noised_after_the_step: the loop changes the weights after optimizer.step"):
        seen = torch_training(noised_after_the_step).seen_on(dataset(records))
    assert "releases='final'" in seen["after_step"]
    assert "after_step" not in torch_training(noised_after_the_step, releases="final").seen_on(dataset(records))
