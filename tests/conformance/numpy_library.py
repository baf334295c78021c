"""DP-SGD in NumPy: right as written, wrong in one way when a bug is switched on."""

from __future__ import annotations

import numpy as np

from conformance.shared import MICROBATCHES, deviation_of_noise, rate_sampled_at, records_of, seed_drawn_from


def step(seed, gradients, *, rate, clip, noise_multiplier, bug=""):
    """The noisy sum of clipped gradients over a Poisson batch; gradients is a dict of arrays (records, ...)."""
    rng = _generator(seed, bug)
    taken = _sample(rng, records_of(gradients), rate, bug)
    rng = _generator(seed, bug) if bug == "one_key" else rng
    return _release(rng, seed, gradients, taken, rate, clip, noise_multiplier, bug)


def training(seed, gradients, *, rate, clip, noise_multiplier, bug=""):
    """Such sums, one for each element of the list."""
    rng, n, epoch, releases = _generator(seed, bug), records_of(gradients[0]), round(1 / rate), []
    noise = velocity = None
    first = _sample(rng, n, rate, bug)
    places = rng.permutation(max(n, epoch))[:n] % epoch
    for t, given in enumerate(gradients):
        if bug == "reseeded_every_step":
            rng = np.random.default_rng(seed)
        rng = _generator(seed + t, bug) if bug == "one_key" else rng
        taken = _sample(rng, n, rate, bug)
        rng = _generator(seed + t, bug) if bug == "one_key" else rng
        if bug == "same_batch_every_step":
            taken = first
        if bug == "shuffled":
            taken = (places == t % epoch).astype(float)
        if bug == "last_step_dropped" and t == len(gradients) - 1:
            releases.append({name: np.zeros(value.shape[1:]) for name, value in given.items()})
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
    if bug == "one_key":
        # the older generator: a normal number of the newer one hides most of the bits that decided who is taken
        return np.random.RandomState(seed % 2**32)
    return np.random.default_rng(seed)


def _sample(rng, n, rate, bug):
    """How often each record is in the batch."""
    if bug == "fixed_batch":
        rng = np.random.default_rng(1)
    if bug in ("fixed_size_batch", "with_replacement"):
        chosen = rng.choice(n, size=round(rate * n), replace=bug == "with_replacement")
        return np.bincount(chosen, minlength=n).astype(float)
    rate = rate_sampled_at(rate, bug)
    taken = (rng.random(n) < rate).astype(float)
    if bug == "even_batch" and taken.sum() % 2:
        taken[np.flatnonzero(taken)[-1]] = 0.0
    if bug == "last_record_dropped":
        taken[-1] = 0.0
    return taken


def _norms(gradients, bug):
    kept = list(gradients)[:-1] if bug == "bias_not_clipped" else list(gradients)
    flat = np.concatenate([gradients[name].reshape(len(gradients[name]), -1) for name in kept], axis=1)
    if bug == "max_norm":
        return np.max(np.abs(flat), axis=1)
    if bug == "squared_norm":
        return np.sum(flat.astype(np.float64) ** 2, axis=1)
    if bug == "float16_norm":
        with np.errstate(over="ignore"):
            return np.sqrt(np.sum(flat.astype(np.float16) ** 2, axis=1, dtype=np.float16))
    return np.linalg.norm(flat.astype(np.float64), axis=1)


def _clip_each(gradients, clip, bug):
    """Every record's gradient shortened to ``clip`` at most."""
    if bug == "clipping_ignored":
        return gradients
    if bug == "coordinates_clipped":
        return {name: np.clip(given, -clip, clip) for name, given in gradients.items()}
    if bug == "clipped_per_tensor":
        return {name: _clip_each({name: given}, clip, "")[name] for name, given in gradients.items()}
    if bug == "norm_over_batch":
        return {
            name: given * np.minimum(1.0, clip / np.maximum(np.linalg.norm(given.astype(np.float64), axis=0), 1e-30))
            for name, given in gradients.items()
        }
    norms = _norms(gradients, bug)
    if bug == "normalised":
        factors = np.where(norms > 0, clip / np.maximum(norms, 1e-12), 0.0)
    else:
        factors = np.minimum(1.0, clip / np.maximum(norms, 1e-30))
    if bug == "tolerance":
        factors = np.where(norms > 1.5 * clip, factors, 1.0)
    if bug == "float16_norm":
        factors = np.where(np.isfinite(norms), factors, 1.0)
    found = {name: (given.T * factors).T for name, given in gradients.items()}
    if bug == "bias_not_clipped":
        last = list(gradients)[-1]
        found[last] = gradients[last]
    return found


def _sum(taken, gradients):
    return {name: np.tensordot(taken, given, axes=1) for name, given in gradients.items()}


def _clip_sum(total, clip):
    return {name: given[0] for name, given in _clip_each({k: v[None] for k, v in total.items()}, clip, "").items()}


def _finite_only(gradients):
    """A record with a NaN or an infinity counts as a gradient of zero."""
    good = np.all([np.isfinite(given).reshape(len(given), -1).all(axis=1) for given in gradients.values()], axis=0)
    return {name: np.where(good.reshape(-1, *[1] * (given.ndim - 1)), given, 0.0) for name, given in gradients.items()}


def _first_of_equals(gradients, taken):
    """One for each record that was taken and no other before it with the same gradient."""
    flat = np.concatenate([given.reshape(len(given), -1) for given in gradients.values()], axis=1)
    equal = (flat[:, None] == flat[None]).all(axis=2) & (taken > 0)
    return ~np.any(np.tril(equal, -1), axis=1)


def _release(rng, seed, gradients, taken, rate, clip, noise_multiplier, bug):
    if bug == "nan_skips_step":
        if not all(np.isfinite(np.tensordot(taken, given, axes=1)).all() for given in gradients.values()):
            return {name: np.zeros(given.shape[1:]) for name, given in gradients.items()}
    elif bug != "nan_released":
        gradients = _finite_only(gradients)
    if bug == "far_dropped":
        taken = taken * (_norms(gradients, "") <= 1e3 * clip)
    if bug == "equal_counted_once":
        taken = taken * _first_of_equals(gradients, taken)
    n, size, bound = len(taken), taken.sum(), clip
    if bug == "batch_clipped":
        total = _clip_sum(_sum(taken, gradients), clip)
    elif bug == "mean_clipped":
        total = _clip_sum(_sum(taken / max(size, 1), gradients), clip)
    elif bug == "microbatches_clipped":
        pairs = [_sum(taken * (np.arange(n) // 2 == i), gradients) for i in range(-(-n // 2))]
        total = _sum(np.ones(len(pairs)), _clip_each({k: np.stack([p[k] for p in pairs]) for k in gradients}, clip, ""))
    elif bug == "bound_of_the_batch":
        bound = max(min(float(np.max(_norms(gradients, "") * taken)), clip), 1e-3 * clip)
        total = _sum(taken, _clip_each(gradients, bound, ""))
    elif bug == "noise_before_clipping":
        std = noise_multiplier * clip
        total = _sum(taken, _clip_each({k: v + rng.normal(0, std, v.shape) for k, v in gradients.items()}, clip, ""))
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
        count = np.sum((_norms(gradients, "") > 0) * taken)
        total = {name: value / max(count, 1) for name, value in total.items()}
    return total


def _noise(rng, seed, shapes, clip, noise_multiplier, batch, bug):
    std = deviation_of_noise(noise_multiplier, clip, batch, bug)
    noise = {}
    for index, (name, shape) in enumerate(shapes.items()):
        if bug == "tensors_share_noise":
            rng = np.random.default_rng(seed)
        if bug == "microbatch_noise":
            noise[name] = sum(rng.normal(0, std / MICROBATCHES, shape) for _ in range(MICROBATCHES))
        elif bug == "noise_on_each_microbatch":
            noise[name] = sum(rng.normal(0, std, shape) for _ in range(MICROBATCHES))
        elif bug == "float16_noise":
            noise[name] = rng.normal(0, std, shape).astype(np.float16)
        elif bug == "laplace_noise":
            noise[name] = rng.laplace(0, std / np.sqrt(2), shape)
        elif bug == "uniform_noise":
            noise[name] = rng.uniform(-np.sqrt(3) * std, np.sqrt(3) * std, shape)
        elif bug == "truncated_noise":
            noise[name] = np.clip(rng.normal(0, std, shape), -2 * std, 2 * std)
        elif bug == "one_number_of_noise":
            noise[name] = np.full(shape, rng.normal(0, std)) if index == 0 else np.full(shape, noise["weight"].flat[0])
        elif bug == "noise_on_first_tensor" and index:
            noise[name] = np.zeros(shape)
        else:
            noise[name] = rng.normal(0, std, shape)
    return noise
