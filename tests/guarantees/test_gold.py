"""Every reference number of tests/data/gold.json, each as one test."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

import pytest
from scipy.optimize import brentq
from three_symbol_clones import three_symbol_clones

import guarantees
from audit.bounds.clopper_pearson import ErrorCounts, delta_lower_bound, epsilon_lower_bound, limits
from guarantees.shuffling import berry_esseen
from guarantees.shuffling.max_coordinate import fixed_point_separation
from papers import shuffled

ENTRIES = json.loads((Path(__file__).parent.parent / "data" / "gold.json").read_text())
NORMALISERS = {
    "EASGM": "expected_batch",
    "ASGM": "realised_batch",
    "FEASGM": "floored_expected_batch",
    "SGM": "none",
}
DIRECTION = {"D'||D": "with_given_without", "D||D'": "without_given_with"}
# The directions of 003's pair: P_S has the record.
PAIR_DIRECTION = {"PQ": "with_given_without", "QP": "without_given_with"}


@functools.lru_cache(maxsize=2)
def claim(name, **parameters):
    return getattr(guarantees, name)(**parameters)


def variance_pair(p):
    return claim("variance_pair", dimension=p["n"], scale=p["s"], shift=p.get("mu", 0.0))


def one_round(p, kind, function="normalised_round"):
    given = {"shared": float(p["a"]), "extra": float(p["b"])} if "a" in p else {}
    return claim(
        function,
        normalise_by=NORMALISERS[kind],
        records=p["N"],
        rate=p["q"],
        noise_multiplier=float(p["sigma"]),
        dimension=p["n"],
        **given,
    )


@functools.lru_cache(maxsize=1)
def composed(kind, times, items):
    return one_round(dict(items), kind).compose(times)


def many_rounds(p, kind):
    single = {key: value for key, value in p.items() if key in ("N", "q", "n", "sigma", "a", "b")}
    return composed(kind, p["T"], tuple(sorted(single.items())))


def sgm(p):
    return claim("subsampled_gaussian", rate=p["q"], noise_multiplier=p["sigma"])


def counts(p):
    return ErrorCounts(false_alarms=p["fp"], trials_without=p["n0"], misses=p["fn"], trials_with=p["n1"])


def expected_counts(p, threshold):
    """What the likelihood-ratio test at this threshold sees on average."""
    alpha, beta = one_round(p, "EASGM").errors(threshold)
    side = p["trials"] // 2
    return ErrorCounts(
        false_alarms=round(alpha * side), trials_without=side, misses=round(beta * side), trials_with=side
    )


def sigma_of(p):
    return guarantees.noise_threshold(rounds=p["M"]) if isinstance(p["sigma"], str) else p["sigma"]


def isolated(p):
    return claim("isolated_shuffle", rounds=p["M"], noise_multiplier=sigma_of(p), epochs=p.get("E", 1))


def largest(p):
    return claim("max_coordinate", rounds=p["M"], noise_multiplier=sigma_of(p))


def fixed(p, name="fixed_batch_shuffle"):
    return claim(name, rounds=p["T"], noise_multiplier=p["sigma"])


def dpsgd(p):
    return claim("poisson_training", rate=p["q"], noise_multiplier=p["sigma"], steps=p["T"])


def floor(p, sampler):
    separation = guarantees.separation_bound(rounds=p["M"], sampler=sampler)
    return guarantees.epsilon_floor(separation=separation, delta=p["delta"])


def smallest_gdp(p):
    """mu-GDP through one (epsilon, delta): delta increases in mu."""
    low, high = 1e-6, 50.0
    for _ in range(200):
        middle = (low + high) / 2
        enough = guarantees.gaussian(mu=middle).delta(p["eps"]) >= p["delta"]
        low, high = (low, middle) if enough else (middle, high)
    return high


def many_dimensions(p):
    """The limit as the dimension grows, where zero gradients leave only the divisor to be seen."""
    return p | {"sigma": 10.0, "n": 10**7, "a": 0, "b": 0}


RANGE = (1e-9, 1 - 1e-9)
VALUES = {
    "T_scale": lambda p: variance_pair(p).beta(p["alpha"]),
    "T_scale_inv": lambda p: variance_pair(p).reverse.beta(p["alpha"]),
    "tv_scale": lambda p: variance_pair(p).total_variation,
    "T_shift_scale": lambda p: variance_pair(p).beta(p["alpha"]),
    "T_shift_scale_inv": lambda p: variance_pair(p).reverse.beta(p["alpha"]),
    "delta_QP": lambda p: variance_pair(p).delta(p["eps"], "with_given_without"),
    "delta_PQ": lambda p: variance_pair(p).delta(p["eps"], "without_given_with"),
    "EASGM_true_TV": lambda p: one_round(p, "EASGM").total_variation,
    "EASGM_true_f": lambda p: one_round(p, "EASGM").beta(p["alpha"]),
    "EASGM_true_eps": lambda p: one_round(p, "EASGM").epsilon(p["delta"], DIRECTION[p["direction"]]),
    "FEASGM_true_TV": lambda p: one_round(p, "FEASGM").total_variation,
    "ASGM_true_TV": lambda p: one_round(p, "ASGM").total_variation,
    "ASGM_true_f": lambda p: one_round(p, "ASGM").beta(p["alpha"]),
    "ASGM_TV_limit_n_inf": lambda p: one_round(many_dimensions(p), "ASGM").total_variation,
    "ASGM_revealed_TV_limit_n_inf": lambda p: one_round(many_dimensions(p), "ASGM", "revealed_round").total_variation,
    "EASGM_revealed_Thm3.6_TV": lambda p: one_round(p, "EASGM", "revealed_round").total_variation,
    "ASGM_revealed_Thm3.7_TV": lambda p: one_round(p, "ASGM", "revealed_round").total_variation,
    "ASGM_revealed_Thm3.7_f": lambda p: one_round(p, "ASGM", "revealed_round").beta(p["alpha"]),
    "SGM_TV": lambda p: sgm(p).total_variation,
    "SGM_eps": lambda p: sgm(p).epsilon(p["delta"]),
    "CLT_mu": lambda p: guarantees.clt_bound(normaliser=p["K"], dimension=p["n"], rounds=p["T"]).mu,
    "CLT_gamma": lambda p: guarantees.clt_bound(normaliser=p["K"], dimension=p["n"], rounds=p["T"]).gamma,
    "audit_ar": lambda p: limits(counts(p), risk=1 - p["conf"]).alpha,
    "audit_br": lambda p: limits(counts(p), risk=1 - p["conf"]).beta,
    "audit_delta_L": lambda p: delta_lower_bound(counts(p), epsilon=p["eps"], risk=1 - p["conf"]),
    "audit_eps_L": lambda p: epsilon_lower_bound(counts(p), delta=p["delta"], risk=1 - p["conf"]),
    "EASGM_LR_alpha_at_t0": lambda p: one_round(p, "EASGM").errors(0.0)[0],
    "EASGM_LR_beta_at_t0": lambda p: one_round(p, "EASGM").errors(0.0)[1],
    "audit_delta_L_LR": lambda p: delta_lower_bound(expected_counts(p, 0.0), epsilon=0.0, risk=1 - p["conf"]),
    "audit_eps_L_LR_t0": lambda p: epsilon_lower_bound(expected_counts(p, 0.0), delta=p["delta"], risk=1 - p["conf"]),
    "audit_eps_L_LR_t=-6.8": lambda p: epsilon_lower_bound(
        expected_counts(p, -6.8), delta=p["delta"], risk=1 - p["conf"]
    ),
    "M_closed": lambda p: guarantees.rounds_needed(delta=p["delta"], noise_multiplier=p["sigma"], exact=False),
    "M_exact": lambda p: guarantees.rounds_needed(delta=p["delta"], noise_multiplier=p["sigma"], exact=True),
    "delta_thm41": lambda p: guarantees.shuffle_berry_esseen(rounds=p["M"], noise_multiplier=p["sigma"]).delta,
    "sigma_max_for_delta": lambda p: shuffled.largest_noise_multiplier(p["delta"]),
    "delta_max_for_sigma": lambda p: shuffled.largest_delta(p["sigma"]),
    "ratio_midpoint_sigma": lambda p: shuffled.coefficient_ratio_midpoint(),
    "mu_sub_coef": lambda p: (
        berry_esseen.poisson_mu(rounds=2, noise_multiplier=p["sigma"], symmetrised=True) * math.sqrt(2)
    ),
    "shuffle01_TV": lambda p: isolated(p).total_variation,
    "shuffle01_f": lambda p: isolated(p).beta(p["alpha"]),
    "shuffle01_f_inv": lambda p: isolated(p).reverse.beta(p["alpha"]),
    "shuffle01_delta_QP": lambda p: isolated(p).delta(p["eps"], "with_given_without"),
    "shuffle01_min_M": lambda p: guarantees.rounds_needed(
        delta=p["delta_TV"], noise_multiplier=p["sigma"], exact="truth"
    ),
    "shuffle01_eps_QP": lambda p: isolated(p).epsilon(p["delta"], "with_given_without"),
    "shuffle01_TV_E_epochs": lambda p: isolated(p).total_variation,
    "mu_of_eps_delta": smallest_gdp,
    "mu_pure": lambda p: guarantees.randomised_response(epsilon=p["eps"]).mu_star(),
    "RR_regret": lambda p: guarantees.randomised_response(epsilon=p["eps"]).regret(),
    "mu_star_dpsgd": lambda p: dpsgd(p).mu_star(RANGE),
    "eps_dpsgd": lambda p: dpsgd(p).epsilon(p["delta"]),
    "regret_dpsgd": lambda p: dpsgd(p).regret(alpha_range=RANGE),
    "delta_D": lambda p: guarantees.deterministic_batches(noise_multiplier=p["sigma"]).delta(p["eps"]),
    "eps_D": lambda p: guarantees.deterministic_batches(noise_multiplier=p["sigma"]).epsilon(p["delta"]),
    "eps_S_lb": lambda p: fixed(p, "fixed_batch_event").epsilon(p["delta"]),
    "delta_S_lb": lambda p: fixed(p, "fixed_batch_event").delta(p["eps"]),
    "PSQS_TV": lambda p: fixed(p).total_variation,
    "PSQS_delta": lambda p: fixed(p).delta(p["eps"], "with_given_without"),
    "eps_P_PLD_upper": lambda p: dpsgd(p | {"q": 1 / p["T"]}).epsilon(p["delta"]),
    "kappa_shuf_lb": lambda p: guarantees.separation_bound(rounds=p["M"]),
    "eps_min_shuf": lambda p: floor(p, "shuffle"),
    "eps_min_pois": lambda p: floor(p, "poisson"),
    "sigma_thr": lambda p: guarantees.noise_threshold(rounds=p["M"]),
    "f_sub": lambda p: largest(p).beta(p["a"]),
    "kappa_sub": lambda p: largest(p).separation,
    "sep_fixed_point_f_sub": lambda p: fixed_point_separation(rounds=p["M"], noise_multiplier=sigma_of(p)),
    "kappa_shuf_exact": lambda p: isolated(p).separation,
    "sep_eps_delta": lambda p: guarantees.epsilon_delta(epsilon=p["eps"], delta=p["delta"]).separation,
    "psqs_delta_PQ": lambda p: fixed(p).delta(p["eps"], PAIR_DIRECTION["PQ"]),
    "psqs_delta_QP": lambda p: fixed(p).delta(p["eps"], PAIR_DIRECTION["QP"]),
    "psqs_eps_PQ": lambda p: fixed(p).epsilon(p["delta"], PAIR_DIRECTION["PQ"]),
    "psqs_eps_QP": lambda p: fixed(p).epsilon(p["delta"], PAIR_DIRECTION["QP"]),
    "psqs_tv": lambda p: fixed(p).total_variation,
    "psqs_f_PQ": lambda p: fixed(p).reverse.beta(p["alpha"]),
    "asgm_T_tv": lambda p: many_rounds(p, "ASGM").total_variation,
    "asgm_T_eps": lambda p: many_rounds(p, "ASGM").epsilon(p["delta"], DIRECTION[p["direction"]]),
    "feasgm_T_tv": lambda p: many_rounds(p, "FEASGM").total_variation,
    "feasgm_T_f": lambda p: many_rounds(p, "FEASGM").beta(p["alpha"]),
    "easgm_T_f": lambda p: many_rounds(p, "EASGM").beta(p["alpha"]),
    "shuffle_upper_eps": lambda p: clones_epsilon(p),
}


def clones_epsilon(p):
    """Epsilon of the clone bound with three symbols, which fixed_batch_upper now improves on."""
    return brentq(
        lambda e: three_symbol_clones(rounds=p["T"], noise_multiplier=p["sigma"], epsilon=e) - p["delta"],
        0,
        3,
        xtol=1e-6,
    )


def label(entry):
    inside = ",".join(f"{key}={value}" for key, value in entry["params"].items())
    return f"{entry['name']}[{inside}]"


def test_the_file_is_whole():
    assert len(ENTRIES) == 232
    assert {entry["name"] for entry in ENTRIES} == set(VALUES)


LONG = {
    "asgm_T_eps",
    "asgm_T_tv",
    "easgm_T_f",
    "feasgm_T_f",
    "psqs_eps_PQ",
    "shuffle01_f",
    "ASGM_TV_limit_n_inf",
    "mu_star_dpsgd",
    "regret_dpsgd",
    "shuffle01_eps_QP",
    "shuffle01_min_M",
}
"""A second and more each, and other numbers of the same curves are fast: `make test-full` computes these."""


def rounds(entry):
    return entry["params"].get("T", entry["params"].get("M", 1))


FAST = {name: min((entry for entry in ENTRIES if entry["name"] == name), key=rounds) for name in VALUES}
"""One number of every formula is fast: the one with the fewest rounds."""


def marked(entry):
    fast = entry is FAST[entry["name"]] and entry["name"] not in LONG
    return pytest.param(entry, id=label(entry), marks=() if fast else pytest.mark.long)


@pytest.mark.few(34)
@pytest.mark.parametrize("entry", [marked(entry) for entry in ENTRIES])
def test_reference_number(entry):
    value = VALUES[entry["name"]](entry["params"])
    tolerance = entry["tolerance"] * (abs(entry["value"]) if entry["tolerance_kind"] == "rel" else 1.0)
    assert abs(value - entry["value"]) <= tolerance, f"{value!r} is not {entry['value']!r} within {tolerance:g}"
