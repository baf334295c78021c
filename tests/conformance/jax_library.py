"""DP-SGD in JAX: right as written, wrong in one way when a bug is switched on."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from conformance.shared import MICROBATCHES, deviation_of_noise, rate_sampled_at, records_of


def step(key, gradients, *, rate, clip, noise_multiplier, bug=""):
    """The noisy sum of clipped gradients over a Poisson batch; gradients is a dict of arrays (records, ...)."""
    key_batch, key_noise = _keys(_key(key, bug), bug)
    taken = _sample(key_batch, records_of(gradients), rate, bug)
    return _release(key_noise, gradients, taken, rate, clip, noise_multiplier, bug)


def training(key, gradients, *, rate, clip, noise_multiplier, bug=""):
    """Such sums, one for each element of the list."""
    key, n, epoch, releases = _key(key, bug), records_of(gradients[0]), round(1 / rate), []
    noise = velocity = None
    first = _sample(key, n, rate, bug)
    places = jax.random.permutation(key, max(n, epoch))[:n] % epoch
    for t, given in enumerate(gradients):
        own = key if bug == "reseeded_every_step" else jax.random.fold_in(key, t)
        key_batch, key_noise = _keys(own, bug)
        taken = _sample(key_batch, n, rate, bug)
        if bug == "same_batch_every_step":
            taken = first
        if bug == "shuffled":
            taken = (places == t % epoch).astype(float)
        if bug == "last_step_dropped" and t == len(gradients) - 1:
            releases.append({name: jnp.zeros(value.shape[1:]) for name, value in given.items()})
            continue
        silent = bug == "noise_on_last_step" and t < len(gradients) - 1
        release = _release(key_noise, given, taken, rate, clip, 0.0 if silent else noise_multiplier, bug)
        clean = _release(key_noise, given, taken, rate, clip, 0.0, bug)
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


def _key(key, bug):
    if bug == "constant_seed":
        return jax.random.key(0)
    if bug == "few_seeds":
        return jax.random.key(jax.random.bits(key) % 16)
    return key


def _keys(key, bug):
    """Of the batch and of the noise."""
    return (key, key) if bug == "one_key" else jax.random.split(key)


def _sample(key, n, rate, bug):
    """How often each record is in the batch."""
    if bug == "fixed_batch":
        key = jax.random.key(1)
    if bug == "fixed_size_batch":
        return jnp.zeros(n).at[jax.random.permutation(key, n)[: round(rate * n)]].set(1.0)
    if bug == "with_replacement":
        return jnp.zeros(n).at[jax.random.randint(key, (round(rate * n),), 0, n)].add(1.0)
    rate = rate_sampled_at(rate, bug)
    taken = jax.random.bernoulli(key, rate, (n,)).astype(float)
    if bug == "even_batch":
        last = jnp.max(jnp.where(taken > 0, jnp.arange(n), 0))
        taken = jnp.where((taken.sum() % 2 == 1) & (jnp.arange(n) == last), 0.0, taken)
    if bug == "last_record_dropped":
        taken = taken.at[-1].set(0.0)
    return taken


def _norms(gradients, bug):
    kept = list(gradients)[:-1] if bug == "bias_not_clipped" else list(gradients)
    flat = jnp.concatenate([gradients[name].reshape(len(gradients[name]), -1) for name in kept], axis=1)
    if bug == "max_norm":
        return jnp.max(jnp.abs(flat), axis=1)
    if bug == "squared_norm":
        return jnp.sum(flat**2, axis=1)
    if bug == "float16_norm":
        return jnp.sqrt(jnp.sum(flat.astype(jnp.float16) ** 2, axis=1, dtype=jnp.float16)).astype(jnp.float32)
    return jnp.linalg.norm(flat, axis=1)


def _scaled(given, factors):
    return given * factors.reshape(-1, *[1] * (given.ndim - 1))


def _clip_each(gradients, clip, bug):
    """Every record's gradient shortened to ``clip`` at most."""
    if bug == "clipping_ignored":
        return gradients
    if bug == "coordinates_clipped":
        return {name: jnp.clip(given, -clip, clip) for name, given in gradients.items()}
    if bug == "clipped_per_tensor":
        return {name: _clip_each({name: given}, clip, "")[name] for name, given in gradients.items()}
    if bug == "norm_over_batch":
        return {
            name: given * jnp.minimum(1.0, clip / jnp.maximum(jnp.linalg.norm(given, axis=0), 1e-30))
            for name, given in gradients.items()
        }
    norms = _norms(gradients, bug)
    factors = clip / jnp.maximum(norms, 1e-12 if bug == "normalised" else 1e-30)
    if bug != "normalised":
        factors = jnp.minimum(factors, 1.0)
    if bug == "tolerance":
        factors = jnp.where(norms > 1.5 * clip, factors, 1.0)
    if bug == "float16_norm":
        factors = jnp.where(jnp.isfinite(norms), factors, 1.0)
    found = {name: _scaled(given, factors) for name, given in gradients.items()}
    if bug == "bias_not_clipped":
        last = list(gradients)[-1]
        found[last] = gradients[last]
    return found


def _sum(taken, gradients):
    return {name: jnp.tensordot(taken, given, axes=1) for name, given in gradients.items()}


def _clip_sum(total, clip):
    return {name: given[0] for name, given in _clip_each({k: v[None] for k, v in total.items()}, clip, "").items()}


def _finite_only(gradients):
    """A record with a NaN or an infinity counts as a gradient of zero."""
    good = jnp.stack([jnp.isfinite(v).reshape(len(v), -1).all(axis=1) for v in gradients.values()]).all(axis=0)
    return {name: jnp.where(good.reshape(-1, *[1] * (v.ndim - 1)), v, 0.0) for name, v in gradients.items()}


def _first_of_equals(gradients, taken):
    """One for each record that was taken and no other before it with the same gradient."""
    flat = jnp.concatenate([given.reshape(len(given), -1) for given in gradients.values()], axis=1)
    equal = (flat[:, None] == flat[None]).all(axis=2) & (taken > 0)
    return ~jnp.any(jnp.tril(equal, -1), axis=1)


def _release(key, gradients, taken, rate, clip, noise_multiplier, bug):
    given = gradients
    if bug not in ("nan_released", "nan_skips_step"):
        gradients = _finite_only(gradients)
    if bug == "far_dropped":
        taken = taken * (_norms(gradients, "") <= 1e3 * clip)
    if bug == "equal_counted_once":
        taken = taken * _first_of_equals(gradients, taken)
    n, size, bound = len(taken), taken.sum(), clip
    if bug == "batch_clipped":
        total = _clip_sum(_sum(taken, gradients), clip)
    elif bug == "mean_clipped":
        total = _clip_sum(_sum(taken / jnp.maximum(size, 1), gradients), clip)
    elif bug == "microbatches_clipped":
        pairs = [_sum(taken * (jnp.arange(n) // 2 == i), gradients) for i in range(-(-n // 2))]
        stacked = {name: jnp.stack([pair[name] for pair in pairs]) for name in gradients}
        total = _sum(jnp.ones(len(pairs)), _clip_each(stacked, clip, ""))
    elif bug == "bound_of_the_batch":
        bound = jnp.clip(jnp.max(_norms(gradients, "") * taken), 1e-3 * clip, clip)
        total = _sum(taken, _clip_each(gradients, bound, ""))
    elif bug == "noise_before_clipping":
        noise = _noise(key, {k: v.shape for k, v in gradients.items()}, clip, noise_multiplier, 1.0, "")
        total = _sum(taken, _clip_each({k: v + noise[k] for k, v in gradients.items()}, clip, ""))
    else:
        total = _sum(taken, _clip_each(gradients, clip, bug))
    if bug == "accumulated_twice":
        total = {name: 2 * value for name, value in total.items()}
    if noise_multiplier and bug not in ("no_noise", "noise_before_clipping"):
        noise = _noise(key, {k: v.shape for k, v in total.items()}, bound, noise_multiplier, rate * n, bug)
        there = (size > 0) if bug == "noise_if_not_empty" else 1.0
        total = {name: total[name] + there * noise[name] for name in total}
    if bug == "divided_by_batch":
        total = {name: value / jnp.maximum(size, 1) for name, value in total.items()}
    if bug == "divided_by_nonzero":
        count = jnp.sum((_norms(gradients, "") > 0) * taken)
        total = {name: value / jnp.maximum(count, 1) for name, value in total.items()}
    if bug == "nan_skips_step":
        good = jnp.stack([jnp.isfinite(value).all() for value in _sum(taken, given).values()]).all()
        total = {name: jnp.where(good, value, 0.0) for name, value in total.items()}
    return total


def _noise(key, shapes, clip, noise_multiplier, batch, bug):
    std = deviation_of_noise(noise_multiplier, clip, batch, bug)
    noise = {}
    for index, (name, shape) in enumerate(shapes.items()):
        own = jax.random.fold_in(key, index)
        normal = std * jax.random.normal(own, shape)
        if bug == "tensors_share_noise":
            # one long draw from the same key for each, cut to its size: counters start anew
            noise[name] = std * jax.random.normal(key, (math.prod(max(shapes.values(), key=math.prod)),))[
                : math.prod(shape)
            ].reshape(shape)
        elif bug == "one_key":
            # one draw for all tensors, as after ravel_pytree
            start = sum(math.prod(before) for before in list(shapes.values())[:index])
            whole = jax.random.normal(key, (sum(map(math.prod, shapes.values())),))
            noise[name] = std * whole[start : start + math.prod(shape)].reshape(shape)
        elif bug in ("microbatch_noise", "noise_on_each_microbatch"):
            part = std / MICROBATCHES if bug == "microbatch_noise" else std
            noise[name] = part * jax.random.normal(own, (MICROBATCHES, *shape)).sum(axis=0)
        elif bug == "float16_noise":
            noise[name] = (std * jax.random.normal(own, shape, jnp.float16)).astype(jnp.float16)
        elif bug == "laplace_noise":
            noise[name] = std / math.sqrt(2) * jax.random.laplace(own, shape)
        elif bug == "uniform_noise":
            noise[name] = math.sqrt(3) * std * jax.random.uniform(own, shape, minval=-1.0)
        elif bug == "truncated_noise":
            noise[name] = jnp.clip(normal, -2 * std, 2 * std)
        elif bug == "one_number_of_noise":
            noise[name] = jnp.full(shape, std * jax.random.normal(key))
        elif bug == "noise_on_first_tensor" and index:
            noise[name] = jnp.zeros(shape)
        else:
            noise[name] = normal
    return noise
