"""DP-SGD in PyTorch: right as written, wrong in one way when a bug is switched on. It draws from a torch generator."""

from __future__ import annotations

import math

import torch

from conformance.shared import MICROBATCHES, deviation_of_noise, rate_sampled_at, records_of, seed_drawn_from


def step(seed, gradients, *, rate, clip, noise_multiplier, bug=""):
    """The noisy sum of clipped gradients over a Poisson batch; gradients is a dict of tensors (records, ...)."""
    rng = _generator(seed, bug)
    taken = _sample(rng, records_of(gradients), rate, bug)
    rng = _generator(seed, bug) if bug == "one_key" else rng
    return _release(rng, seed, gradients, taken, rate, clip, noise_multiplier, bug)


def training(seed, gradients, *, rate, clip, noise_multiplier, bug=""):
    """Such sums, one for each element of the list."""
    rng, n, epoch, releases = _generator(seed, bug), records_of(gradients[0]), round(1 / rate), []
    noise = velocity = None
    first = _sample(rng, n, rate, bug)
    places = torch.randperm(max(n, epoch), generator=rng)[:n] % epoch
    for t, given in enumerate(gradients):
        if bug == "reseeded_every_step":
            rng.manual_seed(seed)
        rng = _generator(seed + t, bug) if bug == "one_key" else rng
        taken = _sample(rng, n, rate, bug)
        rng = _generator(seed + t, bug) if bug == "one_key" else rng
        if bug == "same_batch_every_step":
            taken = first
        if bug == "shuffled":
            taken = (places == t % epoch).float()
        if bug == "last_step_dropped" and t == len(gradients) - 1:
            releases.append({name: torch.zeros(value.shape[1:]) for name, value in given.items()})
            continue
        silent = bug == "noise_on_last_step" and t < len(gradients) - 1
        release = _release(rng, seed, given, taken, rate, clip, 0.0 if silent else noise_multiplier, bug)
        clean = release
        if bug in ("noise_negated", "momentum_before_noise"):
            clean = _release(rng, seed, given, taken, rate, clip, 0.0, bug)
        if bug == "noise_negated":
            if noise is not None:
                release = {name: clean[name] - noise[name] for name in given}
            noise = {name: release[name] - clean[name] for name in given} if t % 2 == 0 else None
        if bug == "momentum_before_noise":
            if velocity is not None:
                release = {name: release[name] + 0.9 * velocity[name] for name in given}
                clean = {name: clean[name] + 0.9 * velocity[name] for name in given}
            velocity = clean
        releases.append(release)
    return releases


def _generator(seed, bug):
    seed = seed_drawn_from(seed, bug)
    return torch.Generator().manual_seed(seed % 2**64)


def _sample(rng, n, rate, bug):
    """How often each record is in the batch."""
    if bug == "fixed_batch":
        rng = torch.Generator().manual_seed(1)
    if bug == "fixed_size_batch":
        taken = torch.zeros(n)
        taken[torch.randperm(n, generator=rng)[: round(rate * n)]] = 1.0
        return taken
    if bug == "with_replacement":
        return torch.bincount(torch.randint(n, (round(rate * n),), generator=rng), minlength=n).float()
    rate = rate_sampled_at(rate, bug)
    taken = (torch.rand(n, generator=rng) < rate).float()
    if bug == "even_batch" and taken.sum() % 2:
        taken[torch.nonzero(taken)[-1]] = 0.0
    if bug == "last_record_dropped":
        taken[-1] = 0.0
    return taken


def _norms(gradients, bug):
    kept = list(gradients)[:-1] if bug == "bias_not_clipped" else list(gradients)
    flat = torch.cat([gradients[name].flatten(1) for name in kept], dim=1)
    if bug == "max_norm":
        return flat.abs().amax(dim=1)
    if bug == "squared_norm":
        return flat.square().sum(dim=1)
    if bug == "float16_norm":
        return flat.half().square().sum(dim=1).sqrt().float()
    return torch.linalg.vector_norm(flat, dim=1)


def _scaled(given, factors):
    return given * factors.reshape(-1, *[1] * (given.ndim - 1))


def _clip_each(gradients, clip, bug):
    """Every record's gradient shortened to ``clip`` at most."""
    if bug == "clipping_ignored":
        return gradients
    if bug == "coordinates_clipped":
        return {name: given.clamp(-clip, clip) for name, given in gradients.items()}
    if bug == "clipped_per_tensor":
        return {name: _clip_each({name: given}, clip, "")[name] for name, given in gradients.items()}
    if bug == "norm_over_batch":
        return {
            name: given * (clip / torch.linalg.vector_norm(given, dim=0).clamp(min=1e-30)).clamp(max=1.0)
            for name, given in gradients.items()
        }
    norms = _norms(gradients, bug)
    factors = clip / norms.clamp(min=1e-12 if bug == "normalised" else 1e-30)
    if bug != "normalised":
        factors = factors.clamp(max=1.0)
    if bug == "tolerance":
        factors = torch.where(norms > 1.5 * clip, factors, 1.0)
    if bug == "float16_norm":
        factors = torch.where(norms.isfinite(), factors, 1.0)
    found = {name: _scaled(given, factors) for name, given in gradients.items()}
    if bug == "bias_not_clipped":
        last = list(gradients)[-1]
        found[last] = gradients[last]
    return found


def _sum(taken, gradients):
    return {name: torch.tensordot(taken, given, dims=1) for name, given in gradients.items()}


def _clip_sum(total, clip):
    return {name: given[0] for name, given in _clip_each({k: v[None] for k, v in total.items()}, clip, "").items()}


def _finite_only(gradients):
    """A record with a NaN or an infinity counts as a gradient of zero."""
    # a finite sum has finite terms, and a sum is one operation
    if all(math.isfinite(given.sum()) for given in gradients.values()):
        return gradients
    good = torch.stack([given.isfinite().flatten(1).all(dim=1) for given in gradients.values()]).all(dim=0)
    place = {name: good.reshape(-1, *[1] * (given.ndim - 1)) for name, given in gradients.items()}
    return {name: torch.where(place[name], given, 0.0) for name, given in gradients.items()}


def _first_of_equals(gradients, taken):
    """One for each record that was taken and no other before it with the same gradient."""
    flat = torch.cat([given.flatten(1) for given in gradients.values()], dim=1)
    equal = (flat[:, None] == flat[None]).all(dim=2) & (taken > 0)
    return ~torch.tril(equal, -1).any(dim=1)


def _release(rng, seed, gradients, taken, rate, clip, noise_multiplier, bug):
    if bug == "nan_skips_step":
        if not all(torch.tensordot(taken, given, dims=1).isfinite().all() for given in gradients.values()):
            return {name: torch.zeros(given.shape[1:]) for name, given in gradients.items()}
    elif bug != "nan_released":
        gradients = _finite_only(gradients)
    if bug == "far_dropped":
        taken = taken * (_norms(gradients, "") <= 1e3 * clip)
    if bug == "equal_counted_once":
        taken = taken * _first_of_equals(gradients, taken)
    n, size, bound = len(taken), float(taken.sum()), clip
    if bug == "batch_clipped":
        total = _clip_sum(_sum(taken, gradients), clip)
    elif bug == "mean_clipped":
        total = _clip_sum(_sum(taken / max(size, 1), gradients), clip)
    elif bug == "microbatches_clipped":
        pairs = [_sum(taken * (torch.arange(n) // 2 == i), gradients) for i in range(-(-n // 2))]
        stacked = {name: torch.stack([pair[name] for pair in pairs]) for name in gradients}
        total = _sum(torch.ones(len(pairs)), _clip_each(stacked, clip, ""))
    elif bug == "bound_of_the_batch":
        bound = max(min(float((_norms(gradients, "") * taken).max()), clip), 1e-3 * clip)
        total = _sum(taken, _clip_each(gradients, bound, ""))
    elif bug == "noise_before_clipping":
        std = noise_multiplier * clip
        noisy = {k: v + std * torch.randn(v.shape, generator=rng) for k, v in gradients.items()}
        total = _sum(taken, _clip_each(noisy, clip, ""))
    else:
        total = _sum(taken, _clip_each(gradients, clip, bug))
    if bug == "accumulated_twice":
        total = {name: 2 * value for name, value in total.items()}
    if noise_multiplier and bug not in ("no_noise", "noise_before_clipping") and (size or bug != "noise_if_not_empty"):
        noise = _noise(rng, seed, {k: v.shape for k, v in total.items()}, bound, noise_multiplier, rate * n, bug)
        total = {name: total[name] + noise[name] for name in total}
    if bug == "divided_by_batch":
        total = {name: value / max(size, 1) for name, value in total.items()}
    if bug == "divided_by_nonzero":
        count = float(((_norms(gradients, "") > 0) * taken).sum())
        total = {name: value / max(count, 1) for name, value in total.items()}
    return total


def _noise(rng, seed, shapes, clip, noise_multiplier, batch, bug):
    std = deviation_of_noise(noise_multiplier, clip, batch, bug)
    noise = {}
    for index, (name, shape) in enumerate(shapes.items()):
        if bug == "tensors_share_noise":
            rng.manual_seed(seed)
            # for fewer than 16 numbers PyTorch draws in another order, and this bug would not be one
            count = math.prod(shape)
            normal = std * torch.randn(max(16, count), generator=rng)[:count].reshape(shape)
        else:
            normal = std * torch.randn(shape, generator=rng)
        if bug in ("microbatch_noise", "noise_on_each_microbatch"):
            part = std / MICROBATCHES if bug == "microbatch_noise" else std
            noise[name] = part * torch.randn((MICROBATCHES, *shape), generator=rng).sum(dim=0)
        elif bug == "float16_noise":
            noise[name] = normal.half()
        elif bug == "laplace_noise":
            u = torch.rand(shape, generator=rng) - 0.5
            noise[name] = -std / math.sqrt(2) * u.sign() * torch.log1p(-2 * u.abs())
        elif bug == "uniform_noise":
            noise[name] = math.sqrt(3) * std * (2 * torch.rand(shape, generator=rng) - 1)
        elif bug == "truncated_noise":
            noise[name] = normal.clamp(-2 * std, 2 * std)
        elif bug == "one_number_of_noise":
            noise[name] = torch.zeros(shape) + (noise["weight"] if index else normal).flatten()[0]
        elif bug == "noise_on_first_tensor" and index:
            noise[name] = torch.zeros(shape)
        else:
            noise[name] = normal
    return noise
