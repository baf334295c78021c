"""Steps of other hands with one bug each, marked where it is made."""

import torch
from diagnosis.hands_torch_steps import C, D, E, S, clip, flat_rows, loop, rows_of, write

WRONG = {}


def wrong(step):
    WRONG[step.__name__] = loop(step)
    return step


@wrong
def w_noise_std_sigma(net, x, y, g, s):
    c = 4.0
    r = flat_rows(net, x, y)
    r = r * (c / r.norm(dim=1, keepdim=True)).clamp(max=1)
    total = r.sum(0)
    noise = torch.randn(len(total), generator=g) * S  # BUG
    write(net, (total + noise) / E)


@wrong
def w_param_noise_forgets_lr(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    write(net, total / E, lr=1.0)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn(p.shape, generator=g), alpha=0.1 * S * C / E)  # BUG


@wrong
def w_clip_by_value(net, x, y, g, s):
    r = flat_rows(net, x, y).clamp(-C, C)  # BUG
    total = r.sum(0)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@wrong
def w_per_layer_full(net, x, y, g, s):
    out = []
    for r in rows_of(net, x, y).values():
        r = r.flatten(1)
        r = r * torch.clamp(C / r.norm(dim=1, keepdim=True), max=1)  # BUG
        out.append(r.sum(0))
    total = torch.cat(out)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@wrong
def w_noise_divided_twice(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0) / E
    noise = S * C * torch.randn(len(total), generator=g)
    noise = noise / (E * E)  # BUG
    write(net, total + noise)


@wrong
def w_clean_momentum(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    s["m"] = 0.9 * s.get("m", 0) + total  # BUG
    write(net, (s["m"] + S * C * torch.randn(len(total), generator=g)) / E)


@wrong
def w_clean_norm_decay(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    u = (total + S * C * torch.randn(len(total), generator=g)) / E
    write(net, u + 0.01 * total)  # BUG


@wrong
def w_realised_count(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    u = total + S * C * torch.randn(len(total), generator=g)
    write(net, u / max(1, len(x)))  # BUG


@wrong
def w_noise_before_clip(net, x, y, g, s):
    r = flat_rows(net, x, y)
    r = r + S * C * torch.randn(r.shape, generator=g)  # BUG
    total = clip(r).sum(0)
    write(net, total / E)


@wrong
def w_padded_without_mask(net, x, y, g, s):
    pad = 12 - len(x)
    x, y = torch.cat([x, torch.zeros(pad, D)]), torch.cat([y, torch.zeros(pad)])  # BUG
    total = clip(flat_rows(net, x, y)).sum(0)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@wrong
def w_microbatch_clip(net, x, y, g, s):
    total = 0
    for a, b in zip(x.split(2), y.split(2), strict=True):
        m = flat_rows(net, a, b).mean(0)  # BUG
        total = total + m * (C / m.norm()).clamp(max=1)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@wrong
def w_noise_shared_by_layers(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    z = torch.randn(1, generator=g)  # BUG
    write(net, (total + S * C * z.expand(len(total))) / E)


@wrong
def w_noise_not_on_bias(net, x, y, g, s):
    gs = rows_of(net, x, y)
    n = torch.stack([r.flatten(1).norm(dim=1) for r in gs.values()]).norm(dim=0)
    f = (C / n).clamp(max=1)
    with torch.no_grad():
        for (k, r), p in zip(gs.items(), net.parameters(), strict=True):
            t = torch.einsum("n,n...->...", f, r)
            if "weight" in k:  # BUG
                t = t + S * C * torch.randn(t.shape, generator=g)
            p -= 0.1 * t / E


@wrong
def w_adaptive_clip_clean(net, x, y, g, s):
    r = flat_rows(net, x, y)
    c = float(r.norm(dim=1).mean())  # BUG
    r = r * (c / r.norm(dim=1, keepdim=True)).clamp(max=1)
    total = r.sum(0) / c
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@wrong
def w_squared_norm(net, x, y, g, s):
    r = flat_rows(net, x, y)
    n = (r**2).sum(1, keepdim=True)
    r = r * (C / n.sqrt().sqrt()).clamp(max=1)  # BUG
    total = r.sum(0)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@wrong
def w_clip_scalar_max(net, x, y, g, s):
    r = flat_rows(net, x, y)
    r = r / r.norm(dim=1).max().clamp(min=C)  # BUG
    total = r.sum(0)
    write(net, (total + S * C * torch.randn(len(total), generator=g)) / E)


@wrong
def w_noise_only_first_step(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    if "z" not in s:
        s["z"] = S * C * torch.randn(len(total), generator=g)  # BUG
    write(net, (total + s["z"]) / E)


@wrong
def w_bias_not_in_norm(net, x, y, g, s):
    gs = rows_of(net, x, y)
    n = torch.stack([r.flatten(1).norm(dim=1) for k, r in gs.items() if "weight" in k]).norm(dim=0)  # BUG
    f = (C / n).clamp(max=1)
    total = torch.cat([torch.einsum("n,n...->...", f, r).flatten() for r in gs.values()])
    write(net, (total + S * C * torch.randn(19, generator=g)) / E)


@wrong
def w_max_for_min(net, x, y, g, s):
    r = flat_rows(net, x, y)
    f = (C / r.norm(dim=1, keepdim=True)).clamp(min=1)  # BUG
    total = (f * r).sum(0)
    write(net, (total + S * C * torch.randn(19, generator=g)) / E)


@wrong
def w_uniform_noise(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    z = S * C * torch.rand(19, generator=g)  # BUG
    write(net, (total + z) / E)


@wrong
def w_last_step_bare(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    if s["t"] < 1:  # BUG
        total = total + S * C * torch.randn(19, generator=g)
    write(net, total / E)


@wrong
def w_noise_on_copy(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    noisy = total.clone()
    noisy += S * C * torch.randn(19, generator=g)
    write(net, total / E)  # BUG


@wrong
def w_mean_loss_rows(net, x, y, g, s):
    out = []
    losses = (net(x) - y) ** 2
    for one in losses / len(x):  # BUG
        out.append(
            torch.cat([t.flatten() for t in torch.autograd.grad(one, list(net.parameters()), retain_graph=True)])
        )
    total = clip(torch.stack(out)).sum(0)
    write(net, (total + S * C * torch.randn(19, generator=g)) / E)


@wrong
def w_lr_from_raw(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    u = (total + S * C * torch.randn(19, generator=g)) / E
    write(net, u, lr=0.1 / (1 + float(total.norm())))  # BUG


@wrong
def w_scaled_by_batch(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).mean(0)
    z = S * C * torch.randn(19, generator=g) / E
    z = z / len(x)  # BUG
    write(net, total + z)


@wrong
def w_tenth_of_noise_on_head(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    std = torch.full((19,), S * C)
    std[-1] = 0.1  # BUG
    write(net, (total + std * torch.randn(19, generator=g)) / E)


@wrong
def w_dropout_of_noise(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    z = S * C * torch.randn(19, generator=g)
    z = z * (torch.rand(19, generator=g) < 0.5)  # BUG
    write(net, (total + z) / E)


@wrong
def w_residual_kept(net, x, y, g, s):
    r = flat_rows(net, x, y)
    c = clip(r)
    s["rest"] = s.get("rest", 0) + (r - c).sum(0)  # BUG
    total = c.sum(0) + 0.1 * s["rest"]
    write(net, (total + S * C * torch.randn(19, generator=g)) / E)


@wrong
def w_noise_abs(net, x, y, g, s):
    total = clip(flat_rows(net, x, y)).sum(0)
    z = (S * C * torch.randn(19, generator=g)).clamp(-0.5, 0.5)  # BUG
    write(net, (total + z) / E)
