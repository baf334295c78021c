"""Steps and trainings in PyTorch: right ones, and wrong ones whose fault is at the line that says so."""

from __future__ import annotations

import torch
from torch import nn
from torch.func import grad, vmap

COLUMNS, CLIP, NOISE, RATE, LEARNING = 5, 2.0, 1.5, 0.7, 0.1
START = torch.linspace(-1, 1, COLUMNS)


def gradients(weights, x, y):
    return vmap(grad(lambda w, x, y: (x @ w - y) ** 2 / 2), (None, 0, 0))(weights, x, y)


def clipped(given):
    return given * (CLIP / given.norm(dim=1, keepdim=True).clamp(min=1e-9)).clamp(max=1.0)


def poisson(data):
    taken = torch.rand(len(data[0])) < RATE
    return data[0][taken], data[1][taken]


def noise():
    return CLIP * NOISE * torch.randn(COLUMNS)


def right_training(seed, data):
    torch.manual_seed(seed)
    weights = START.clone()
    for _ in range(3):
        weights = weights - LEARNING * (clipped(gradients(weights, *poisson(data))).sum(0) + noise())
    return weights


def right_padding(seed, data):
    """Poisson batches of one size, filled with zeros that a mask takes out again."""
    generator = torch.Generator().manual_seed(seed)
    taken = torch.nonzero(torch.rand(len(data[0]), generator=generator) < RATE).flatten()
    index = torch.zeros(16, dtype=torch.long)
    index[: len(taken)] = taken
    there = (torch.arange(16) < len(taken)).float()
    total = (clipped(gradients(START, data[0][index], data[1][index])) * there[:, None]).sum(0)
    return total + CLIP * NOISE * torch.randn(COLUMNS, generator=generator)


def right_empty(seed, data):
    """A loop over the records of a batch that may have none."""
    torch.manual_seed(seed)
    total = torch.zeros(COLUMNS)
    for x, y in zip(*(column[torch.rand(len(column)) < 0.05] for column in data), strict=False):
        total += clipped(gradients(START, x[None], y[None]))[0]
    return total + noise()


def right_loop(seed, data):
    torch.manual_seed(seed)
    weights = START.clone().requires_grad_()
    total = torch.zeros(COLUMNS)
    for x, y in zip(*data, strict=True):
        weights.grad = None
        ((x @ weights - y) ** 2 / 2).backward()
        total += weights.grad * min(1.0, CLIP / (weights.grad.norm().item() + 1e-9))
    return weights.detach() - LEARNING * (total + torch.normal(0, CLIP * NOISE, (COLUMNS,)))


def right_dropout(seed, data):
    torch.manual_seed(seed)
    x = nn.functional.dropout(data[0], 0.3)
    return clipped(gradients(START, x, data[1])).sum(0) + noise()


def right_augmentation(seed, data):
    """Noise on the inputs is no noise that covers anything, and none is missing."""
    torch.manual_seed(seed)
    x = data[0] + 0.1 * torch.randn_like(data[0])
    return clipped(gradients(START, x, data[1])).sum(0) + noise()


def right_noise_before_sum(seed, data):
    """Each of four workers sums its records and adds a quarter of the variance."""
    torch.manual_seed(seed)
    rows = clipped(gradients(START, *data))
    parts = [rows[worker::4].sum(0) + noise() / 2 for worker in range(4)]
    return parts[0] + parts[1] + parts[2] + parts[3]


def right_stacked_noise(seed, data):
    torch.manual_seed(seed)
    rows = clipped(gradients(START, *data))
    parts = torch.stack([rows[worker::4].sum(0) for worker in range(4)])
    return (parts + CLIP * NOISE / 2 * torch.randn(4, COLUMNS)).sum(0)


def right_momentum(seed, data):
    torch.manual_seed(seed)
    weights, velocity = START.clone(), torch.zeros(COLUMNS)
    for _ in range(3):
        velocity = 0.9 * velocity + clipped(gradients(weights, *poisson(data))).sum(0) + noise()
        weights = weights - LEARNING * velocity
    return weights


def right_automatic(seed, data):
    torch.manual_seed(seed)
    rows = gradients(START, *data)
    return (CLIP * rows / (rows.norm(dim=1, keepdim=True) + 0.01)).sum(0) + noise()


def right_regulariser(seed, data):
    torch.manual_seed(seed)
    weights = START.clone()
    for _ in range(2):
        update = clipped(gradients(weights, *poisson(data))).sum(0) + noise() + 0.01 * weights
        weights = weights - LEARNING * update
    return weights


def right_mixed_precision(seed, data):
    torch.manual_seed(seed)
    rows = gradients(START.bfloat16(), data[0].bfloat16(), data[1].bfloat16()).float()
    return clipped(rows).sum(0) + noise()


def right_microbatches(seed, data):
    torch.manual_seed(seed)
    total = torch.zeros(COLUMNS)
    for x, y in zip(data[0].split(3), data[1].split(3), strict=True):
        total += clipped(gradients(START, x, y)).sum(0)
    return total + noise()


def right_mean_loss(seed, data):
    """A mean over the batch that a factor undoes before the clipping."""
    torch.manual_seed(seed)
    x, y = data
    weights = START.clone().expand(len(x), COLUMNS).clone().requires_grad_()
    (((x * weights).sum(1) - y) ** 2 / 2).mean().backward()
    return clipped(weights.grad * len(x)).sum(0) + noise()


def right_layers(seed, data):
    """Two tensors, each with its own bound; the bounds have the length CLIP together."""
    torch.manual_seed(seed)
    rows = gradients(START, *data)
    bounds = CLIP * 0.6, CLIP * 0.8
    total = []
    for part, bound in zip((rows[:, :2], rows[:, 2:]), bounds, strict=True):
        total.append((part * (bound / part.norm(dim=1, keepdim=True)).clamp(max=1.0)).sum(0))
    return {"a": total[0] + CLIP * NOISE * torch.randn(2), "b": total[1] + CLIP * NOISE * torch.randn(3)}


def right_flat_noise(seed, data):
    """One vector of noise, cut into tensors."""
    torch.manual_seed(seed)
    total = clipped(gradients(START, *data)).sum(0)
    everything = noise()
    return {"a": total[:2] + everything[:2], "b": total[2:] + everything[2:]}


def right_uniform(seed, data):
    torch.manual_seed(seed)
    width = CLIP * NOISE * 12**0.5
    return clipped(gradients(START, *data)).sum(0) + width * (torch.rand(COLUMNS) - 0.5)


def right_logged(seed, data):
    """What is only looked at is not released."""
    torch.manual_seed(seed)
    x, y = poisson(data)
    total = clipped(gradients(START, x, y)).sum(0) + noise()
    assert (total / max(1, len(x))).norm().item() >= 0
    return total


def right_adam(seed, data):
    torch.manual_seed(seed)
    weights = START.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=LEARNING)
    for _ in range(2):
        weights.grad = (clipped(gradients(weights.detach(), *poisson(data))).sum(0) + noise()) / 6
        optimizer.step()
    return weights.detach()


def bare_bias(seed, data):
    torch.manual_seed(seed)
    rows = clipped(torch.cat([gradients(START, *data), (data[0] @ START - data[1])[:, None]], 1))
    bias = rows[:, COLUMNS:].sum(0)  # released_without_noise
    return {"weight": rows[:, :COLUMNS].sum(0) + noise(), "bias": bias}


def drawn_batch_size(seed, data):
    torch.manual_seed(seed)
    x, y = poisson(data)
    total = clipped(gradients(START, x, y)).sum(0) + noise()
    return total / len(x)  # changed_after_release


def rate_from_loss(seed, data):
    torch.manual_seed(seed)
    weights = START.clone()
    for _ in range(2):
        total = clipped(gradients(weights, *data)).sum(0) + noise()
        loss = ((data[0] @ weights - data[1]) ** 2).mean().item()
        weights = weights - LEARNING / (1 + loss) * total  # changed_after_release
    return weights


def raw_momentum(seed, data):
    torch.manual_seed(seed)
    weights, velocity = START.clone(), torch.zeros(COLUMNS)
    for _ in range(2):
        total = clipped(gradients(weights, *data)).sum(0)
        weights = weights - LEARNING * (total + noise())
        weights = weights - LEARNING * velocity  # changed_after_release
        velocity = 0.9 * velocity + total
    return weights


def early_stop(seed, data):
    torch.manual_seed(seed)
    weights = START.clone()
    for _ in range(4):
        weights = weights - LEARNING * (clipped(gradients(weights, *data)).sum(0) + noise())
        if ((data[0] @ weights - data[1]) ** 2).sum().item() > 300:  # changed_after_release
            break
    return weights


def noise_over_count(seed, data):
    torch.manual_seed(seed)
    mean = clipped(gradients(START, *data)).mean(0)
    scaled = torch.randn(COLUMNS) * (CLIP * NOISE / len(data[0]))  # noise_scale_from_data
    return mean + scaled


def normalised_batch(seed, data):
    torch.manual_seed(seed)
    x = (data[0] - data[0].mean(0)) / data[0].std(0)  # records_mixed_before_sum
    return clipped(gradients(START, x, data[1])).sum(0) + noise()


def median_bound(seed, data):
    torch.manual_seed(seed)
    rows = gradients(START, *data)
    norms = rows.norm(dim=1)
    bound = norms.median().item()
    factors = (bound / norms).clamp(max=1.0)  # records_mixed_before_sum
    return (rows * factors[:, None]).sum(0) + 10 * noise()


def wrong_axis(seed, data):
    torch.manual_seed(seed)
    rows = gradients(START, *data)
    rows = rows * (CLIP / rows.norm(dim=0, keepdim=True)).clamp(max=1.0)  # records_mixed_before_sum
    return rows.sum(0) + noise()


def clip_after_sum(seed, data):
    torch.manual_seed(seed)
    weights = START.clone().requires_grad_()
    ((data[0] @ weights - data[1]) ** 2 / 2).sum().backward()
    nn.utils.clip_grad_norm_([weights], CLIP)  # clipped_after_sum
    return weights.grad + noise()


def no_clipping(seed, data):
    torch.manual_seed(seed)
    total = gradients(START, *data).sum(0)  # not_clipped
    return total + noise()


def seed_again(seed, data):
    weights = START.clone()
    for _ in range(2):
        torch.manual_seed(seed)
        drawn = torch.randn(COLUMNS)  # key_used_twice
        weights = weights - LEARNING * (clipped(gradients(weights, *data)).sum(0) + CLIP * NOISE * drawn)
    return weights


def one_seed(seed, data):
    """The sampler's generator and that of the noise begin in the same state."""
    sampler, other = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
    taken = torch.rand(len(data[0]), generator=sampler) < RATE  # key_used_twice
    total = clipped(gradients(START, data[0][taken], data[1][taken])).sum(0)
    return total + CLIP * NOISE * torch.randn(COLUMNS, generator=other)


def noise_kept(seed, data):
    torch.manual_seed(seed)
    weights, kept = START.clone(), noise()
    for _ in range(2):
        weights = weights - LEARNING * (clipped(gradients(weights, *data)).sum(0) + kept)  # key_used_twice
    return weights


def seed_from_data(seed, data):
    torch.manual_seed(seed + int(data[0].abs().sum() * 1000))
    drawn = torch.randn(COLUMNS)  # randomness_from_data
    return clipped(gradients(START, *data)).sum(0) + CLIP * NOISE * drawn


def half_noise(seed, data):
    torch.manual_seed(seed)
    total = clipped(gradients(START, *data)).sum(0)  # too_little_noise
    return total + 0.5 * noise()


RIGHT = [value for name, value in list(globals().items()) if name.startswith("right_")]
WRONG = [
    bare_bias,
    drawn_batch_size,
    rate_from_loss,
    raw_momentum,
    early_stop,
    noise_over_count,
    normalised_batch,
    median_bound,
    wrong_axis,
    clip_after_sum,
    no_clipping,
    seed_again,
    one_seed,
    noise_kept,
    seed_from_data,
    half_noise,
]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(COLUMNS, affine=False)
        self.layers = nn.Sequential(nn.Linear(COLUMNS, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x):
        return self.layers(x)[:, 0]


def with_opacus(data, seed):
    import opacus

    net = Net().layers
    net, optimizer, loader = opacus.PrivacyEngine().make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=LEARNING, momentum=0.9),
        data_loader=torch.utils.data.DataLoader(data, batch_size=4),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
    )
    for x, y in loader:
        optimizer.zero_grad()
        ((net(x)[:, 0] - y) ** 2).mean().backward()
        optimizer.step()
    return net


def by_hand(data, seed, normalise=False):
    """Poisson batches, per-example gradients by a loop, an optimizer of PyTorch's."""
    net = Net()
    weights = list(net.layers.parameters())
    optimizer = torch.optim.Adam(weights, lr=LEARNING)
    for _ in range(2):
        x, y = poisson(data.tensors)
        if normalise:
            x = net.norm(x)  # records_mixed_before_sum
        total = [torch.zeros_like(p) for p in weights]
        for one, target in zip(x, y, strict=True):
            found = torch.autograd.grad((net(one[None])[0] - target) ** 2, weights)
            length = torch.stack([part.norm() for part in found]).norm()
            for own, part in zip(total, found, strict=True):
                own += part * (CLIP / length).clamp(max=1.0)
        for p, own in zip(weights, total, strict=True):
            p.grad = (own + CLIP * NOISE * torch.randn_like(own)) / 6
        optimizer.step()
    return net.layers


def normalised_by_hand(data, seed):
    return by_hand(data, seed, normalise=True)


def by_subclass(data, seed, deviation=CLIP * NOISE):
    """The noise is added by the optimizer's own step, as in PyVacy."""

    class Noisy(torch.optim.Adam):
        def step(self):
            for p in self.param_groups[0]["params"]:
                p.grad = (p.grad + deviation * torch.randn_like(p)) / 6
            super().step()

    net = Net().layers
    weights = list(net.parameters())
    optimizer = Noisy(weights, lr=LEARNING)
    total = [torch.zeros_like(p) for p in weights]
    for one, target in zip(*data.tensors, strict=True):
        found = torch.autograd.grad((net(one[None])[0, 0] - target) ** 2, weights)
        length = torch.stack([part.norm() for part in found]).norm()
        for own, part in zip(total, found, strict=True):
            own += part * (CLIP / length).clamp(max=1.0)
    for p, own in zip(weights, total, strict=True):
        p.grad = own
    optimizer.step()
    return net


def half_noise_by_subclass(data, seed):
    return by_subclass(data, seed, CLIP * NOISE / 2)


def last_records(dataset, seed):
    """The last four records of the dataset, which is read record by record into one tensor."""
    torch.manual_seed(seed)
    x, y = (torch.stack([dataset[place][column] for place in range(len(dataset))]) for column in (0, 1))
    return START - LEARNING * (clipped(gradients(START, x[-4:], y[-4:])).sum(0) + noise())


def two_batches(dataset, seed, *, clip_sum=False, shuffled=True):
    """One epoch of two batches of n // 2 records, each clipped by itself; or else their sum."""
    torch.manual_seed(seed)
    x, y = dataset.tensors
    model = torch.nn.Linear(COLUMNS, 1)
    size = len(x) // 2
    order = (torch.randperm(len(x)) if shuffled else torch.arange(len(x))).tolist()
    for start in (0, size):
        total = [torch.zeros_like(part) for part in model.parameters()]
        for index in order[start : start + size]:
            model.zero_grad()
            ((model(x[index]) - y[index]) ** 2).sum().backward()
            norm = torch.sqrt(sum((part.grad**2).sum() for part in model.parameters())).item()
            for own, part in zip(total, model.parameters(), strict=True):
                own += part.grad * (1.0 if clip_sum else min(1.0, CLIP / norm))
        if clip_sum:
            length = torch.sqrt(sum((own**2).sum() for own in total))
            total = [own * torch.clamp(CLIP / length, max=1.0) for own in total]
        with torch.no_grad():
            for own, part in zip(total, model.parameters(), strict=True):
                part -= 0.1 * (own + NOISE * CLIP * torch.randn_like(own)) / 4
    return model
