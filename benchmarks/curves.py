"""Seconds and accuracy of trade-off curves, beside the peers that do the same job, in one run.

    python benchmarks/curves.py [--bins 1000]

Peers are skipped where they are not installed: pip install gdpnum riskcal prv-accountant PLD-accounting. Every line
starts from nothing and includes whatever the package computes to answer. The last column is processor time, all
threads together.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import guarantees

RATE, NOISE, STEPS = 0.01, 1.0, 1000


def timed(name: str, job: Callable[[], str]) -> None:
    began, processor = time.perf_counter(), time.process_time()
    try:
        found = job()
    except ImportError as missing:
        print(f"| {name} | not installed ({missing.name}) | | |", flush=True)
        return
    wall, cpu = time.perf_counter() - began, time.process_time() - processor
    print(f"| {name} | {found} | {wall:.2f} | {cpu:.2f} |", flush=True)


def one_round() -> str:
    claim = guarantees.normalised_round(
        normalise_by="expected_batch", records=59_999, rate=0.005, noise_multiplier=10.0, dimension=1_485_217
    )
    return f"TV {claim.total_variation:.7f}, f(.1) {float(claim.beta(0.1)):.7f}, error {claim.error:.0e}"


def isolated() -> str:
    claim = guarantees.isolated_shuffle(rounds=10**6, noise_multiplier=1.0)
    return f"TV {claim.total_variation:.3e}, error {claim.error:.0e}"


def fixed_batch() -> str:
    claim = guarantees.fixed_batch_shuffle(rounds=10**4, noise_multiplier=1.0)
    epsilon = float(claim.epsilon(1e-5, "with_given_without"))
    return f"epsilon(1e-5) {epsilon:.5f}, TV {claim.total_variation:.7f}, error {claim.error:.0e}"


def balls_and_bins(rounds: int) -> str:
    return f"epsilon(1e-5) {float(guarantees.balls_and_bins(rounds=rounds, noise_multiplier=1.0).epsilon(1e-5)):.4f}"


def balls_and_bins_pld_accounting(rounds: int) -> str:
    import PLD_accounting

    found = PLD_accounting.gaussian_allocation_epsilon_range(delta=1e-5, sigma=1.0, num_steps=rounds)
    return f"epsilon(1e-5) in [{min(found):.4f}, {max(found):.4f}]"


def poisson(accountant: str) -> str:
    claim = guarantees.poisson_training(rate=RATE, noise_multiplier=NOISE, steps=STEPS, accountant=accountant)
    power, mu = 1 - float(claim.beta(1e-6)), claim.mu_star()
    epsilon = float(claim.epsilon(1e-5))
    return (
        f"epsilon(1e-5) {epsilon:.5f}, TPR at FPR 1e-6 {power:.3g}, mu on [1e-6, 1-1e-6] {mu:.4f}, "
        f"regret {claim.regret():.2g}, error {claim.error:.0e}"
    )


def poisson_gdpnum() -> str:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
    from gdpnum import PLDConverter

    pld = from_gaussian_mechanism(
        standard_deviation=NOISE, sampling_prob=RATE, use_connect_dots=True, value_discretization_interval=1e-4
    ).self_compose(STEPS)
    converter = PLDConverter(pld)
    mu, regret = converter.get_mu_and_regret(1e-10)
    return f"TPR at FPR 1e-6 {1 - float(converter.get_beta(1e-6)):.3g}, mu {mu:.4f}, regret {regret:.2g}"


def poisson_riskcal() -> str:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
    from riskcal.analysis import get_beta_from_pld

    pld = from_gaussian_mechanism(
        standard_deviation=NOISE, sampling_prob=RATE, use_connect_dots=True, value_discretization_interval=1e-4
    ).self_compose(STEPS)
    return f"TPR at FPR 1e-6 {1 - float(get_beta_from_pld(pld, alpha=1e-6)):.3g}"


def poisson_prv() -> str:
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    prv = PoissonSubsampledGaussianMechanism(noise_multiplier=NOISE, sampling_probability=RATE)
    accountant = PRVAccountant(prvs=prv, max_self_compositions=STEPS, eps_error=0.01, delta_error=1e-8)
    low, estimate, high = accountant.compute_epsilon(delta=1e-5, num_self_compositions=[STEPS])
    return f"epsilon(1e-5) {estimate:.5f} in [{low:.4f}, {high:.4f}]"


def jobs(bins: int) -> dict[str, Callable[[], str]]:
    return {
        "one round, EASGM, N 59,999, n 1,485,217": one_round,
        "isolated shuffle, M 1e6, sigma 1": isolated,
        "fixed-batch shuffle, T 1e4, sigma 1": fixed_batch,
        f"balls and bins, T {bins}, sigma 1": lambda: balls_and_bins(bins),
        "  the same by PLD-accounting": lambda: balls_and_bins_pld_accounting(bins),
        "Poisson, q .01, sigma 1, T 1000, through dp-accounting": lambda: poisson("pld"),
        "  the same by our certified composition": lambda: poisson("certified"),
        "  the same by gdpnum": poisson_gdpnum,
        "  the same by riskcal": poisson_riskcal,
        "  the same by prv-accountant": poisson_prv,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", type=int, default=1000, help="rounds of balls and bins; PLD-accounting takes minutes")
    arguments = parser.parse_args()
    print("| job | result | seconds | CPU s |\n|---|---|---|---|")
    for name, job in jobs(arguments.bins).items():
        timed(name, job)


if __name__ == "__main__":
    main()
