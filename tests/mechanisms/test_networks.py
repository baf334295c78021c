"""The networks have the sizes that papers print, and are the same function in both libraries."""

import numpy as np
import pytest

from mechanisms.networks import PARAMETERS
from mechanisms.networks.for_torch import network, parameters_of, reset_parameters
from mechanisms.pairs.images import labelled_images

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

ROWS = np.concatenate([labelled_images("mnist")[:4], labelled_images("fashion_mnist")[:4]])


def torch_gradients(net, rows):
    """One backward pass for every example: no library between."""
    found = []
    for row in torch.from_numpy(rows).split(1):
        inputs, target = net.batch(row)
        (loss,) = net.losses(net.model(*inputs), target)
        parts = torch.autograd.grad(loss, list(net.model.parameters()))
        found.append(torch.cat([part.ravel() for part in parts]).numpy())
    return np.stack(found)


@pytest.mark.parametrize("kind", PARAMETERS)
def test_networks_have_the_size_of_the_systems(kind):
    net = network(kind, columns=785)
    assert len(parameters_of(net.model)) == PARAMETERS[kind] == {"classifier": 26_010, "denoiser": 1_485_217}[kind]


@pytest.mark.parametrize("kind", PARAMETERS)
def test_initial_weights_are_the_same_every_time_and_draw_nothing(kind):
    torch.default_generator.manual_seed(1)
    before = torch.get_rng_state()
    first, second = (parameters_of(network(kind, columns=785).model) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("kind", PARAMETERS)
def test_every_example_moves_every_layer(kind):
    net = network(kind, columns=785)
    rows = ROWS if kind == "classifier" else ROWS[:2]
    gradients = torch.from_numpy(torch_gradients(net, rows))
    for part in gradients.split([parameter.numel() for parameter in net.model.parameters()], dim=1):
        assert (part.abs().amax(dim=1) > 0).all()


def test_a_reset_brings_the_weights_back():
    model = network("classifier", columns=785).model
    start = parameters_of(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert not torch.equal(parameters_of(model), start)
    reset_parameters(model, start)
    assert torch.equal(parameters_of(model), start)


def test_the_denoisers_noise_comes_from_the_seed():
    net = network("denoiser", columns=785)
    rows = torch.from_numpy(ROWS)

    def drawn(seed):
        torch.default_generator.manual_seed(seed)
        (noisy, _), noise = net.batch(rows)
        return noisy, noise

    assert torch.equal(drawn(1)[0], drawn(1)[0])
    assert not torch.equal(drawn(1)[0], drawn(2)[0])
    # scaled to unit size, and different for every example
    assert len(np.unique(drawn(1)[1][:, 0, 0, 0])) == len(ROWS)
    assert 0.2 < float(drawn(1)[0].std()) < 3


def test_a_linear_models_gradients_are_the_rows():
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(torch_gradients(network("linear", columns=4, layers=2), rows), rows)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"kind": "transformer", "columns": 785}, "network must be one of"),
        ({"kind": "classifier", "columns": 100}, "784 pixels and a label"),
        ({"kind": "denoiser", "columns": 785, "layers": 2}, "layers must be 1"),
    ],
    ids=str,
)
def test_what_is_no_network_is_refused(words, message):
    with pytest.raises(ValueError, match=message):
        network(words.pop("kind"), **words)


def torch_weights_in_flax(model):
    """Convolutions (out, in, height, width) to (height, width, in, out); linear layers transposed."""
    weights = [parameter.detach().numpy() for parameter in model.parameters()]
    names = ["Conv_0", "Conv_1", "Dense_0", "Dense_1"]
    kernels = [kernel.transpose(2, 3, 1, 0) if kernel.ndim == 4 else kernel.T for kernel in weights[::2]]
    return {
        "params": {
            name: {"kernel": kernel, "bias": bias}
            for name, kernel, bias in zip(names, kernels, weights[1::2], strict=True)
        }
    }


@pytest.mark.long
def test_flax_and_pytorch_give_the_same_gradient_for_every_image():
    import jax
    from jax.flatten_util import ravel_pytree

    from mechanisms.networks.for_flax import flat_network

    net, flat = network("classifier", columns=785), flat_network("classifier")
    assert len(flat.initial) == 26_010
    same, _ = ravel_pytree(torch_weights_in_flax(net.model))
    # a GPU would otherwise multiply in 10-bit mantissas
    with jax.default_matmul_precision("highest"):
        found = jax.vmap(jax.grad(flat.loss), in_axes=(None, 0))(same, ROWS)
    ours = torch_gradients(net, ROWS)
    names = jax.vmap(flat.unravel)(found)["params"]
    order = ["Conv_0", "Conv_1", "Dense_0", "Dense_1"]
    axes = {5: (0, 4, 3, 1, 2), 3: (0, 2, 1), 2: (0, 1)}
    leaves = [names[name][part] for name in order for part in ("kernel", "bias")]
    theirs = np.concatenate([np.transpose(leaf, axes[leaf.ndim]).reshape(len(ROWS), -1) for leaf in leaves], axis=1)
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=2e-5 * np.abs(ours).max())
    # other weights have other gradients: the comparison can fail
    others = jax.vmap(jax.grad(flat.loss), in_axes=(None, 0))(flat.initial, ROWS)
    assert np.abs(others - found).max() > 0.01 * np.abs(ours).max()
