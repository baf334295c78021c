"""Where the noise of the libraries ends, and what that leaks: docs/float-tails.md holds the measured table.

    python benchmarks/noise_tails.py [--scale 1.0]

Needs Optax, JAX Privacy, PyTorch and Opacus. First the support of the two generators by computation, then pooled draws
through each library's whole step (audit.noise_tails) at noise multiplier 1/2 and rate 1.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import guarantees
import mechanisms
from audit.diagnosis.noise_tails import ASSUMES, JAX_END, TORCH_END, NoiseTails, noise_tails

CLIP, NOISE, DIMENSION = 1.0, 0.5, 1_000_000
MANTISSAS = 2**23


def jax_formula(mantissas: jax.Array) -> jax.Array:
    """What jax.random.normal makes of 23 random bits in float32."""
    low = np.nextafter(np.float32(-1), np.float32(0))
    unit = jax.lax.bitcast_convert_type(mantissas | jnp.uint32(0x3F800000), jnp.float32) - 1
    uniform = jnp.maximum(low, unit * (np.float32(1) - low) + low)
    return np.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform)


def jax_support() -> tuple[bool, float, float]:
    """Whether the formula reproduces the library's own draws, bit for bit; smallest and largest of all 2^23 values."""
    key = jax.random.key(1)
    own = jax.jit(jax_formula)(jax.random.bits(key, (10**6,), jnp.uint32) >> 9)
    same = bool(jnp.all(own == jax.jit(lambda: jax.random.normal(key, (10**6,), jnp.float32))()))
    values = jax.jit(jax_formula)(jnp.arange(MANTISSAS, dtype=jnp.uint32))
    return same, float(jnp.min(values)), float(jnp.max(values))


def torch_support() -> tuple[float, bool, float]:
    """Largest difference between Box-Muller on torch.rand and torch.randn; whether 15 draws differ; the end."""
    import torch

    size = 16 * 10**5
    torch.manual_seed(1)
    uniforms = torch.rand(size).double().numpy().reshape(-1, 2, 8)
    torch.manual_seed(1)
    drawn = torch.randn(size).double().numpy().reshape(-1, 2, 8)
    radius, angle = np.sqrt(-2 * np.log(1 - uniforms[:, 0])), 2 * np.pi * uniforms[:, 1]
    own = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    torch.manual_seed(1)
    short = torch.randn(15).numpy()
    other = not np.allclose(short, drawn.ravel()[:15], atol=1e-3)
    return float(np.abs(own - drawn).max()), other, math.sqrt(2 * 24 * math.log(2))


def row(name: str, found: NoiseTails, seconds: float) -> str:
    """One line of the table."""
    counts = " | ".join(f"{point.beyond:,} ({point.expected:.1f})" for point in found.points)
    return (
        f"| {name} | {found.draws:.2g} | {found.largest:.5f} ({found.typical_largest:.2f}) | {counts} | "
        f"{found.p_value:.1g} | {found.delta:.2g} | {seconds:.0f} s |"
    )


def print_supports() -> None:
    """What the two generators can draw at all."""
    same, low, high = jax_support()
    print(
        f"jax.random.normal: formula reproduces 1e6 draws bit for bit: {same}; its 2^23 values: {low:.5f} to {high:.5f}"
    )
    gap, other, end = torch_support()
    print(f"torch.randn: Box-Muller on torch.rand differs by at most {gap:.1e} over 1.6e6 draws; it ends at {end:.5f};")
    print(f"             vectors of 15 are drawn by another algorithm: {other}\n")


def steps() -> dict[str, tuple[Any, float, float]]:
    """Mechanism, what it divides by, and how many draws show its end."""
    return {
        "Optax": (mechanisms.optax_step(clip=CLIP, noise_multiplier=NOISE), 2.0, 1e9),
        "JAX Privacy": (mechanisms.jax_privacy_step(rate=1.0, clip=CLIP, noise_multiplier=NOISE), 1.0, 1e9),
        "Opacus": (
            mechanisms.opacus_step(batch_size=2, loss_reduction="sum", clip=CLIP, noise_multiplier=NOISE),
            1.0,
            4e9,
        ),
        "one_round": (
            mechanisms.one_round(normalise_by="none", rate=1.0, clip=CLIP, noise_multiplier=NOISE),
            1.0,
            4e9,
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of draws")
    scale = parser.parse_args().scale
    print_supports()
    pair = mechanisms.worst_case_pair(records=1, dimension=DIMENSION, clip=CLIP, shared=0.0, relation="zero_out")
    claim = guarantees.gaussian(mu=1 / NOISE)
    heads = [f"beyond {t:g} (normal)" for t in (JAX_END, TORCH_END)]
    print(f"| noise | draws | largest (normal) | {' | '.join(heads)} | p | delta >= | time |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (step, divisor, draws) in steps().items():
        began = time.monotonic()
        found = noise_tails(
            step,
            pair,
            claim=claim,
            clip=CLIP,
            noise_multiplier=NOISE,
            draws=int(scale * draws),
            key=jax.random.key(7),
            divisor=divisor,
        )
        print(row(name, found, time.monotonic() - began), flush=True)
    print(f"\nDelta at epsilon {claim.epsilon(1e-5):.4g}, where 1e-5 is claimed. Assumed: {ASSUMES}.")


if __name__ == "__main__":
    main()
