"""How long the differing record's gradient is, and which record has the longest."""

from __future__ import annotations

import numpy as np
import pytest

import mechanisms
from mechanisms.pairs.gradient_lengths import GradientLengths, lengths_of
from mechanisms.pairs.gradient_pairs import known_lengths, neighbours_from_gradients

ROWS = np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]])


def loss(weights, record):
    """Linear: a record's gradient is the record."""
    return weights @ record


def test_lengths_are_those_of_the_rows_and_the_record_is_not_among_the_others():
    assert lengths_of(ROWS, 1) == GradientLengths(record=2.0, others=(1.0, 1.0, 5.0))


def test_rows_that_occur_often_count_as_often():
    found = lengths_of(ROWS, 2, counts=(1, 5, 3), group=1)
    assert found == GradientLengths(record=1.0, others=(1.0, 2.0, 5.0))


def test_one_record_alone_has_no_others():
    assert lengths_of(ROWS[:1], 0) == GradientLengths(record=5.0)


def test_a_pair_of_gradients_says_its_lengths():
    pair = mechanisms.worst_case_pair(records=4, dimension=3, clip=2.0, extra=0.25)
    assert repr(pair).endswith("4 records without; gradient of length 0.5, others 2, bound 2>")
    assert pair.gradient_lengths is not None
    assert pair.gradient_lengths.is_short


def test_a_pair_of_records_says_nothing():
    assert mechanisms.add_record(ROWS, ROWS[0]).gradient_lengths is None


def test_all_gradients_zero_are_meant_to_be():
    zero = mechanisms.zero_pair(records=3, dimension=2, clip=1.0).gradient_lengths
    assert zero is not None
    assert not zero.is_short
    assert zero.advice() == ""


@pytest.mark.parametrize(
    ("lengths", "short"),
    [
        (GradientLengths(record=0.5, others=(1.0, 2.0, 3.0), bound=1.0), True),
        (GradientLengths(record=1.5, others=(1.0, 2.0, 3.0), bound=1.0), False),
        (GradientLengths(record=1.5, others=(1.0, 2.0, 3.0)), True),
        (GradientLengths(record=2.0, others=(1.0, 2.0, 3.0)), False),
        (GradientLengths(record=0.1), False),
    ],
)
def test_a_record_is_short_below_the_bound_or_below_most_others(lengths, short):
    assert lengths.is_short is short
    assert ("mechanisms.worst_record" in lengths.advice()) is short


def test_the_mechanism_says_the_bound_and_the_user_the_gradients():
    step = mechanisms.callable_step(lambda seed, data: data.sum(0), clip=4.0, gradients=lambda data: 2 * data)
    found = known_lengths(step, mechanisms.add_record(ROWS, ROWS[1]))
    assert found is not None
    assert (found.record, found.bound) == (pytest.approx(4.0), 4.0)
    assert found.others == pytest.approx((2.0, 4.0, 10.0))


def test_gradients_that_scores_worked_out_are_not_worked_out_again():
    def refuse(data):
        raise AssertionError

    step = mechanisms.callable_step(lambda seed, data: data.sum(0), gradients=refuse)
    read = neighbours_from_gradients(ROWS, ROWS[0])
    found = known_lengths(step, mechanisms.add_record(ROWS, ROWS[1]), read)
    assert found is not None
    assert found.record == pytest.approx(5.0)


def test_the_worst_record_is_the_one_with_the_longest_gradient():
    found = mechanisms.worst_record(np.zeros(2), loss, ROWS[1:], ROWS * [[1.0], [-4.0], [1.0]], clip=1.0)
    assert (found.index, found.lengths) == (1, (5.0, 8.0, 1.0))
    np.testing.assert_array_equal(found.record, [0.0, -8.0])
    assert repr(found).startswith("<WorstRecord: number 1 of 3 candidates, gradient of length 8, cosine")
    assert found.opposed == pytest.approx(-2 / np.sqrt(5))
    assert repr(found.pair).endswith("2 records without; gradient of length 8, others 1 to 2 (median 1), bound 1>")


def test_the_worst_record_needs_a_dataset():
    with pytest.raises(TypeError, match="candidates must be an array"):
        mechanisms.worst_record(np.zeros(2), loss, ROWS, 3)


class TestInPyTorch:
    """The same of a module and its criterion."""

    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.fixture
    def model(self, torch):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return torch.nn.Sequential(
                torch.nn.Conv2d(1, 2, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(8, 3)
            )

    @pytest.fixture
    def data(self, torch):
        generator = torch.Generator().manual_seed(1)
        return torch.randn(5, 1, 4, 4, generator=generator), torch.arange(5) % 3

    def test_gradients_are_those_of_autograd(self, torch, model, data):
        from mechanisms.networks.torch_gradients import loss_gradients

        found = loss_gradients(model, torch.nn.functional.cross_entropy, torch.utils.data.TensorDataset(*data))
        for place in range(5):
            loss = torch.nn.functional.cross_entropy(model(data[0][place : place + 1]), data[1][place : place + 1])
            for (name, _), own in zip(
                model.named_parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
            ):
                np.testing.assert_allclose(found[name][place], own.numpy(), atol=1e-6)

    def test_what_vmap_cannot_trace_goes_record_by_record(self, torch, model, data):
        from mechanisms.networks.torch_gradients import loss_gradients

        def branches(outputs, target):
            both = torch.nn.functional.cross_entropy(outputs, target)
            return both if both.item() > 0 else both * 0

        plain = loss_gradients(model, torch.nn.functional.cross_entropy, data)
        for name, own in loss_gradients(model, branches, data).items():
            np.testing.assert_allclose(own, plain[name], atol=1e-6)

    def test_records_that_are_dicts_are_given_to_the_loss_with_the_model(self, torch, model, data):
        from mechanisms.networks.torch_gradients import loss_gradients

        def loss(model, batch):
            return torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])

        plain = loss_gradients(model, torch.nn.functional.cross_entropy, data)
        for name, own in loss_gradients(model, loss, {"x": data[0], "y": data[1]}).items():
            np.testing.assert_allclose(own, plain[name], atol=1e-6)

    def test_a_training_is_measured_at_the_weights_that_are_audited(self, torch, data):
        """A model built elsewhere has other weights, where another record may have the longest gradient."""
        cross_entropy = torch.nn.functional.cross_entropy

        def train(dataset, seed):
            model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            cross_entropy(model(dataset[:][0]), dataset[:][1]).backward()
            optimizer.step()

        records = torch.utils.data.TensorDataset(*data)
        step = mechanisms.torch_training(train, clip=1.0, loss=cross_entropy)
        found = mechanisms.worst_record(step, None, records, records)
        audited = known_lengths(step, found.pair)
        assert audited is not None
        assert found.lengths[found.index] == pytest.approx(audited.record)
        with pytest.raises(ValueError, match="None with a mechanism"):
            mechanisms.worst_record(step, cross_entropy, records, records)
        with pytest.raises(ValueError, match="loss must be a function"):
            mechanisms.worst_record(np.zeros(2), None, ROWS, ROWS)

    def test_a_bright_image_is_the_worst_record(self, torch, model, data):
        images, labels = data
        bright = torch.cat([images[:3], 9 * images[:1]]), torch.cat([labels[:3], (labels[:1] + 1) % 3])
        found = mechanisms.worst_record(model, torch.nn.functional.cross_entropy, data, bright, clip=1.0)
        assert found.index == 3
        assert found.pair.gradient_lengths is not None
        assert found.pair.gradient_lengths.record == max(found.lengths)
