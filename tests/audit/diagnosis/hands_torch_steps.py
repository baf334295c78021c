"""Steps of other hands: right ones in unusual styles."""

import math

import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap

C, S, Q, T, D, H, E = 1.0, 1.5, 0.5, 2, 4, 3, 5.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(D, H), nn.Linear(H, 1)

    def forward(self, x):
        return self.l2(torch.tanh(self.l1(x))).squeeze(-1)


def start():
    torch.manual_seed(0)
    return Net()


def sample(n, g):
    return (torch.rand(n, generator=g) < Q).nonzero().flatten()


def rows_of(net, x, y):
    p = {k: v.detach() for k, v in net.named_parameters()}

    def f(p, a, b):
        return (functional_call(net, p, (a[None],))[0] - b) ** 2

    return vmap(grad(f), (None, 0, 0))(p, x, y)


def flat_rows(net, x, y):
    return torch.cat([g.flatten(1) for g in rows_of(net, x, y).values()], 1)


def write(net, vector, lr=0.1):
    with torch.no_grad():
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(net.parameters()) - lr * vector, net.parameters())


def loop(step):
    def train(dataset, seed):
        g = torch.Generator().manual_seed(seed)
        net = start()
        X, Y = dataset.tensors
        state = {}
        for t in range(T):
            state["t"] = t
            i = sample(len(X), g)
            step(net, X[i], Y[i], g, state)
        return net

    train.step = step
    return train


def clip(r):
    return r * (C / r.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)


RIGHT = {}


def right(step):
    RIGHT[step.__name__] = loop(step)
    return step


@right
def r_chunk_accumulated(net, x, y, g, s):
    total = torch.zeros(sum(p.numel() for p in net.parameters()))
    for a, b in zip(x.split(2), y.split(2), strict=True):
        total.add_(clip(flat_rows(net, a, b)).sum(0))
    total.add_(torch.empty_like(total).normal_(generator=g), alpha=S * C)
    write(net, total.div_(E))


@right
def r_double_precision(net, x, y, g, s):
    r = flat_rows(net, x, y).double()
    total = (
        r
        / torch.maximum(
            torch.ones(len(r), 1, dtype=torch.float64), torch.linalg.vector_norm(r, dim=1, keepdim=True) / C
        )
    ).sum(0)
    noise = torch.normal(torch.zeros_like(total), S * C, generator=g)
    write(net, ((total + noise) / E).float())


@right
def r_bfloat_forward(net, x, y, g, s):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = []
        for a, b in zip(x, y, strict=True):
            loss = (net(a[None])[0].float() - b) ** 2
            out.append(torch.cat([t.flatten() for t in torch.autograd.grad(loss, list(net.parameters()))]))
    r = torch.stack(out) if out else torch.zeros(0, sum(p.numel() for p in net.parameters()))
    write(net, (clip(r.float()).sum(0) + S * C * torch.randn(r.shape[1], generator=g)) / E)


@right
def r_noise_on_parameters(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    write(net, total / E)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn(p.shape, generator=g), alpha=0.1 * S * C / E)


@right
def r_per_layer_split_bound(net, x, y, g, s):
    gs = rows_of(net, x, y)
    c = C / math.sqrt(len(gs))
    out = []
    for r in gs.values():
        r = r.flatten(1)
        r = r * torch.clamp(c / (r.norm(dim=1, keepdim=True) + 1e-9), max=1)
        out.append(r.sum(0))
    total = torch.cat(out)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@right
def r_mask_all(net, x, y, g, s):
    # weights as a mask on normalised rows
    r = flat_rows(net, x, y)
    n = r.norm(dim=1)
    w = torch.where(n > C, C / n, torch.ones_like(n))
    total = w @ r
    write(net, torch.lerp(total, total + S * C * torch.randn(len(total), generator=g), 1.0) / E)


@right
def r_adam_by_hand(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    u = (total + S * C * torch.randn(len(total), generator=g)) / E
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * u
    s["v"] = 0.99 * s.get("v", 0) + 0.01 * u * u
    write(net, s["m"] / (s["v"].sqrt() + 1e-8))


@right
def r_weight_decay(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    noise = torch.stack([torch.randn((), generator=g) for _ in range(len(total))]) * S * C
    w = nn.utils.parameters_to_vector(net.parameters()).detach()
    write(net, (total + noise) / E + 0.01 * w)


@right
def r_hooks(net, x, y, g, s):
    acts, outs = {}, {}
    hs = []
    for m in (net.l1, net.l2):
        hs.append(m.register_forward_hook(lambda m, i, o: acts.__setitem__(m, i[0].detach())))
        hs.append(m.register_full_backward_hook(lambda m, gi, go: outs.__setitem__(m, go[0].detach())))
    net.zero_grad()
    ((net(x) - y) ** 2).sum().backward()
    for h in hs:
        h.remove()
    sq = sum((outs[m] ** 2).sum(1) * ((acts[m] ** 2).sum(1) + 1) for m in acts)
    f = (C / sq.sqrt()).clamp(max=1)
    for m in acts:
        m.weight.grad = ((outs[m] * f[:, None]).T @ acts[m] + S * C * torch.randn(m.weight.shape, generator=g)) / E
        m.bias.grad = ((outs[m] * f[:, None]).sum(0) + S * C * torch.randn(m.bias.shape, generator=g)) / E
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad


@right
def r_padded_with_mask(net, x, y, g, s):
    pad = 12 - len(x)
    x, y = torch.cat([x, torch.zeros(pad, D)]), torch.cat([y, torch.zeros(pad)])
    mask = (torch.arange(12) < 12 - pad).float()
    r = clip(flat_rows(net, x, y)) * mask[:, None]
    total = r.sum(0)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@right
def r_loss_scale(net, x, y, g, s):
    scale = 1024.0
    out = []
    for a, b in zip(x, y, strict=True):
        loss = (net(a[None])[0] - b) ** 2 * scale
        out.append(torch.cat([t.flatten() for t in torch.autograd.grad(loss, list(net.parameters()))]) / scale)
    total = clip(torch.stack(out)).sum(0)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@right
def r_jacrev(net, x, y, g, s):
    p = {k: v.detach() for k, v in net.named_parameters()}
    j = jacrev(lambda p: (functional_call(net, p, (x,)) - y) ** 2)(p)
    total = clip(torch.cat([t.flatten(1) for t in j.values()], 1)).sum(0)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@right
def r_batched_grads(net, x, y, g, s):
    losses = (net(x) - y) ** 2
    gs = torch.autograd.grad(losses, list(net.parameters()), torch.eye(len(x)), is_grads_batched=True)
    total = clip(torch.cat([t.flatten(1) for t in gs], 1)).sum(0)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@right
def r_augmented(net, x, y, g, s):
    r = 0
    for _ in range(3):
        r = r + flat_rows(net, x + 0.1 * torch.randn(x.shape, generator=g), y) / 3
    total = clip(r).sum(0)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@right
def r_banded(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    z = S * C * torch.randn(len(total), generator=g) * 1.5
    u = total + z - 0.5 * s.get("z", torch.zeros_like(z))
    s["z"] = z
    write(net, u / E)


@right
def r_quantile_clip(net, x, y, g, s):
    c = s.setdefault("c", torch.tensor(C))
    r = flat_rows(net, x, y)
    n = r.norm(dim=1)
    total = (r * (c / n).clamp(max=1)[:, None]).sum(0)
    count = ((n <= c).float() - 0.5).sum() + 10.0 * torch.randn((), generator=g)
    write(net, (total + 1.51 * c * torch.randn(len(total), generator=g)) / E)
    s["c"] = c * torch.exp(-0.2 * (count / E))


@right
def r_four_draws(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    z = torch.zeros_like(total)
    torch.normal(0, S * C, (1, 1), generator=g)
    for _ in range(4):
        z += torch.normal(0, S * C, total.shape, generator=g)
    z /= 2
    write(net, (total + z) / E)


@right
def r_auto_clip(net, x, y, g, s):
    r = flat_rows(net, x, y)
    total = (r / (r.norm(dim=1, keepdim=True) + 0.01)).sum(0)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@right
def r_subspace(net, x, y, g, s):
    B = torch.linalg.qr(torch.randn(19, 5, generator=torch.Generator().manual_seed(1)))[0]
    total = clip(flat_rows(net, x, y) @ B).sum(0)
    write(net, B @ (total + S * C * torch.randn(5, generator=g)) / E)


@right
def r_micro_noise(net, x, y, g, s):
    parts = []
    for k in range(2):
        t = clip(flat_rows(net, x[k::2], y[k::2])).sum(0)
        parts.append(t + S * C / math.sqrt(2) * torch.randn(19, generator=g))
    write(net, (parts[0] + parts[1]) / E)


@right
def r_log_and_use(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    z = S * C * torch.randn(len(total), generator=g)
    s["norm"] = float((total + z).norm())
    write(net, (total + z) / E)


@right
def r_decayed_clip(net, x, y, g, s):
    c = C * 0.5 ** s["t"]
    r = flat_rows(net, x, y)
    total = (r * (c / r.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
    write(net, (total + S * c * torch.randn(len(total), generator=g)) / E)


@right
def r_ema(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    w = nn.utils.parameters_to_vector(net.parameters()).detach()
    s["ema"] = s.get("ema", w).lerp(w - 0.1 * (total + S * C * torch.randn(19, generator=g)) / E, 0.3)
    with torch.no_grad():
        nn.utils.vector_to_parameters(s["ema"], net.parameters())


@right
def r_sign_of_release(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    u = torch.sign(total + S * C * torch.randn(19, generator=g))
    u[u.abs() < 0.5] = 0
    write(net, u / u.norm())


@right
def r_all_rows_masked(net, x, y, g, s):
    # padding by repeating the first, weights zero
    n, k = len(x), 12
    idx = torch.cat([torch.arange(n), torch.zeros(k - n, dtype=torch.long)])
    w = (torch.arange(k) < n).float()
    r = clip(flat_rows(net, x[idx], y[idx]))
    total = torch.einsum("n,nd->d", w, r)
    write(net, (total + S * C * torch.randn(19, generator=g)) / E)


@right
def r_noise_first(net, x, y, g, s):
    u = S * C * torch.randn(19, generator=g)
    for a, b in zip(x, y, strict=True):
        u += clip(flat_rows(net, a[None], b[None]))[0]
    write(net, u / E)


@right
def r_noise_first_list(net, x, y, g, s):
    us = [S * C * torch.randn(p.shape, generator=g) for p in net.parameters()]
    for a, b in zip(x, y, strict=True):
        gs = torch.autograd.grad((net(a[None])[0] - b) ** 2, list(net.parameters()))
        n = math.sqrt(sum(float(t.pow(2).sum()) for t in gs))
        for u, t in zip(us, gs, strict=True):
            u.add_(t, alpha=min(1.0, C / n))
    with torch.no_grad():
        for p, u in zip(net.parameters(), us, strict=True):
            p.sub_(u, alpha=0.1 / E)


@right
def r_distribution(net, x, y, g, s):
    torch.manual_seed(int(torch.randint(2**31, (1,), generator=g)))
    total = clip(flat_rows(net, x, y)).sum(0)
    z = torch.distributions.Normal(0.0, S * C).sample(total.shape)
    write(net, (total + z) / E)


@right
def r_different_noise_units(net, x, y, g, s):
    # weights and biases in groups with bounds of their own, noise in proportion
    gs = rows_of(net, x, y)
    with torch.no_grad():
        for (k, r), p in zip(gs.items(), net.parameters(), strict=True):
            c = 0.9 if "weight" in k else 0.1
            f = r.flatten(1)
            t = (f * (c / f.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
            z = 2 * S * c * torch.randn(t.shape, generator=g)
            p -= 0.1 * ((t + z) / E).view_as(p)
