"""A function that cannot be called as we call it is refused where it is handed over, at its own line."""

import functools

import jax
import pytest

import mechanisms


def alone(data):
    """Takes one argument."""
    return data


def with_more(key, data, *, rate):
    """Takes two and wants a third."""
    return data


def with_default(first, second, scale=1.0):
    """Takes two."""
    return second


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (mechanisms.mechanism, "a step is called with (key, dataset)"),
        (mechanisms.callable_step, "function is called with (seed, dataset)"),
        (mechanisms.torch_training, "train is called with (dataset, seed)"),
    ],
    ids=["mechanism", "callable_step", "torch_training"],
)
def test_a_wrong_signature_is_refused_at_the_users_line(make, said):
    for wrong in (alone, with_more, lambda: None):
        with pytest.raises(TypeError) as raised:
            make(wrong)
        assert said in str(raised.value)
        assert f"{__file__}:{wrong.__code__.co_firstlineno}" in str(raised.value)
    for right in (with_default, functools.partial(with_more, rate=0.1), jax.jit(with_default), lambda *both: both):
        make(right)


@pytest.mark.parametrize(
    ("make", "turned"),
    [
        (mechanisms.mechanism, lambda dataset, key: dataset),
        (mechanisms.callable_step, lambda data, seed: data),
        (mechanisms.torch_training, lambda seed, data: data),
    ],
    ids=["mechanism", "callable_step", "torch_training"],
)
def test_arguments_in_another_order_are_refused(make, turned):
    with pytest.raises(TypeError, match="it has them in another order"):
        make(turned)
