"""Six JAX steps of six hands; each is right, and wrong in one way with bug=True."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

C, S = 1.0, 1.5  # clip, noise multiplier
Q, T = 0.5, 2
D, H = 4, 3
EXPECTED = 5.0


def init():
    key = jax.random.PRNGKey(7)
    a, b = jax.random.split(key)
    return {"w1": jax.random.normal(a, (D, H)), "b1": jnp.zeros(H), "w2": jax.random.normal(b, (H,))}


def loss_fn(p, x, y):
    return 0.5 * (jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] - y) ** 2


# 1 a class with methods: noise missing on one leaf
class Trainer:
    def __init__(self, bug):
        self.bug = bug
        self.params = init()

    def per_example(self, batch, mask):
        g = jax.vmap(jax.grad(loss_fn), in_axes=(None, 0, 0))(self.params, batch["x"], batch["y"])
        return jax.tree.map(lambda leaf: leaf * mask.reshape((-1,) + (1,) * (leaf.ndim - 1)), g)

    def clip(self, g):
        sq = sum(jnp.sum(leaf.reshape(leaf.shape[0], -1) ** 2, axis=1) for leaf in jax.tree.leaves(g))
        f = jnp.minimum(1.0, C / jnp.sqrt(jnp.maximum(sq, 1e-12)))
        return jax.tree.map(lambda leaf: jnp.tensordot(f, leaf, axes=1), g)

    def add_noise(self, key, s):
        leaves, tree = jax.tree.flatten(s)
        keys = jax.random.split(key, len(leaves))
        out = []
        for leaf, k in zip(leaves, keys, strict=True):
            if self.bug and leaf.ndim == 1 and leaf is leaves[0]:
                out.append(leaf)  # BUG
            else:
                out.append(leaf + C * S * jax.random.normal(k, leaf.shape))
        return jax.tree.unflatten(tree, out)

    def step(self, key, data):
        kb, kn = jax.random.split(key)
        mask = jax.random.bernoulli(kb, Q, (data["y"].shape[0],)).astype(jnp.float32)
        s = self.clip(self.per_example(data, mask))
        g = jax.tree.map(lambda leaf: leaf / EXPECTED, self.add_noise(kn, s))
        return jax.tree.map(lambda p, leaf: p - 0.1 * leaf, self.params, g)


def one(bug):
    return lambda key, data: Trainer(bug).step(key, data)


# 2 closures and scan: noise scaled by the realised batch
def two(bug):
    def make_step(data):
        n = data["x"].shape[0]

        def clipped(w, x, y):
            g = jax.grad(loss_fn)(w, x, y)
            nrm = optax.global_norm(g)
            return jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, C / (nrm + 1e-12)), g)

        def step(w, key):
            kb, kn = jax.random.split(key)
            m = jax.random.uniform(kb, (n,)) < Q
            gs = jax.vmap(clipped, (None, 0, 0))(w, data["x"], data["y"])
            tot = jax.tree.map(lambda leaf: jnp.einsum("n,n...->...", m.astype(leaf.dtype), leaf), gs)
            size = jnp.maximum(m.sum(), 1.0) if bug else EXPECTED  # BUG
            flat, un = jax.flatten_util.ravel_pytree(tot)
            noisy = flat / EXPECTED + C * S / size * jax.random.normal(kn, flat.shape)
            return jax.tree.map(lambda a, b: a - 0.2 * b, w, un(noisy)), None

        return step

    def train(key, data):
        return jax.lax.scan(make_step(data), init(), jax.random.split(key, T))[0]

    return train


# 3 optax chain: clip after averaging
def three(bug):
    def step(key, data):
        kb, kn = jax.random.split(key)
        p = init()
        mask = jax.random.bernoulli(kb, Q, (len(data["y"]),))
        g = jax.vmap(jax.grad(loss_fn), (None, 0, 0))(p, data["x"], data["y"])
        g = jax.tree.map(lambda leaf: jnp.where(mask.reshape((-1,) + (1,) * (leaf.ndim - 1)), leaf, 0.0), g)
        if bug:
            mean = jax.tree.map(lambda leaf: leaf.sum(0) / EXPECTED, g)
            tx = optax.clip_by_global_norm(C / EXPECTED)
            mean, _ = tx.update(mean, tx.init(mean))  # BUG
        else:
            n = jax.vmap(optax.global_norm)(g)
            g = jax.vmap(lambda t, f: jax.tree.map(lambda leaf: leaf * f, t))(g, C / jnp.maximum(n, C))
            mean = jax.tree.map(lambda leaf: leaf.sum(0) / EXPECTED, g)
        ls, td = jax.tree.flatten(mean)
        ks = td.unflatten(list(jax.random.split(kn, len(ls))))
        noisy = jax.tree.map(lambda leaf, k: leaf + S * C / EXPECTED * jax.random.normal(k, leaf.shape), mean, ks)
        opt = optax.adam(1e-2)
        upd, _ = opt.update(noisy, opt.init(p), p)
        return optax.apply_updates(p, upd)

    return step


# 4 equinox-like dataclass pytrees: per-layer clip with the global bound
@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Net:
    w1: Any
    b1: Any
    w2: Any

    def __call__(self, x):
        return jnp.tanh(x @ self.w1 + self.b1) @ self.w2


def four(bug):
    def mse(net, x, y):
        return (net(x) - y) ** 2

    def clip_one(g):
        if bug:
            return jax.tree.map(
                lambda leaf: leaf * jnp.minimum(1, C / jnp.maximum(jnp.linalg.norm(leaf.ravel()), 1e-9)),  # BUG
                g,
            )
        n = jnp.sqrt(jax.tree.reduce(lambda a, leaf: a + jnp.vdot(leaf, leaf), g, 0.0))
        return jax.tree.map(lambda leaf: leaf / jnp.maximum(1, n / C), g)

    @functools.partial(jax.jit)
    def step(key, data):
        net = Net(**init())
        k1, k2 = jax.random.split(key)
        take = jax.random.uniform(k1, (len(data["y"]), 1)) <= Q

        def one(x, y, t):
            return jax.tree.map(lambda leaf: leaf * t[0], clip_one(jax.grad(mse)(net, x, y)))

        tot = jax.tree.map(lambda leaf: jnp.sum(leaf, 0), jax.vmap(one)(data["x"], data["y"], take))
        leaves, td = jax.tree.flatten(tot)
        leaves = [
            leaf + C * S * jax.random.normal(jax.random.fold_in(k2, i), leaf.shape) for i, leaf in enumerate(leaves)
        ]
        return dataclasses.asdict(td.unflatten(leaves))

    return step


# 5 flat vectors, einsum clipping, fori_loop: noise key reused in all the steps
def five(bug):
    def train(key, data):
        p0, unravel = jax.flatten_util.ravel_pytree(init())
        kn0, kb0 = jax.random.split(key)
        jac = jax.vmap(jax.grad(lambda v, x, y: loss_fn(unravel(v), x, y)), (None, 0, 0))

        def body(t, v):
            kb = jax.random.fold_in(kb0, t)
            kn = kn0 if bug else jax.random.fold_in(kn0, t)
            sel = jax.random.bernoulli(kb, Q, (data["x"].shape[0],)).astype(v.dtype)
            G = jac(v, data["x"], data["y"])
            r = jax.lax.rsqrt(jnp.maximum(jnp.einsum("nd,nd->n", G, G) / C**2, 1.0))
            s = jnp.einsum("nd,n,n->d", G, r, sel)
            return v - 0.05 * (s + C * S * jax.random.normal(kn, s.shape)) / EXPECTED  # BUG

        return jax.lax.fori_loop(0, T, body, p0)

    return train


# 6 functional helpers, sigma instead of sigma*clip (C6 = 2), momentum of noisy
C6 = 2.0


def clip_tree(tree, bound):
    norm = optax.global_norm(tree)
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, bound / norm), tree)


def gaussian_like(key, tree, std):
    flat, un = jax.flatten_util.ravel_pytree(tree)
    return un(std * jax.random.normal(key, flat.shape))


def six(bug):
    def update(state, inputs, data):
        params, vel = state
        kb, kn = inputs
        take = jax.random.bernoulli(kb, Q, (len(data["y"]),))
        g = jax.vmap(lambda x, y: clip_tree(jax.grad(loss_fn)(params, x, y), C6))(data["x"], data["y"])
        s = jax.tree.map(lambda leaf: jnp.sum(jnp.where(jnp.expand_dims(take, range(1, leaf.ndim)), leaf, 0), 0), g)
        noise = gaussian_like(kn, s, S if bug else S * C6)  # BUG
        avg = jax.tree.map(lambda a, b: (a + b) / EXPECTED, s, noise)
        vel = jax.tree.map(lambda m, a: 0.9 * m + a, vel, avg)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, vel), vel

    def run(key, data):
        p = init()
        state = p, jax.tree.map(jnp.zeros_like, p)
        for k in jax.random.split(key, T):
            state = update(state, jax.random.split(k), data)
        return state[0]

    return run


ALL = {"one": one, "two": two, "three": three, "four": four, "five": five, "six": six}
