"""Claims side by side: what each promises, in all the ways that people report it."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from typing import Any, cast

from rich.console import Console
from rich.table import Table

import guarantees
from audit.report.table import log_width
from guarantees.checks import require
from guarantees.claim import Claim
from guarantees.numerics.rounding import at_least, at_most
from guarantees.summary import EpsilonRange, Summary
from guarantees.vocabulary import NORMALISERS, PairRelation

SAMPLERS = ("poisson", "shuffle", "shuffle-upper", "isolated-shuffle", "balls-and-bins", "deterministic")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A training as practitioners describe it."""

    rate: float
    noise_multiplier: float
    steps: int
    records: int | None
    dimension: int | None
    batches: int | None = None
    """Batches per epoch, if known apart from the rate: the last batch may be smaller."""

    @property
    def rounds(self) -> int:
        """Batches per epoch: the known number, or one over the rate."""
        return self.batches or max(1, round(1 / self.rate))

    @property
    def epochs(self) -> int:
        """Passes over the data that the steps make; samplers that shuffle need a whole number."""
        epochs = max(1, round(self.steps / self.rounds))
        require(
            "steps",
            epochs * self.rounds == self.steps,
            f"a multiple of the {self.rounds} batches an epoch when shuffled",
            self.steps,
        )
        return epochs


def poisson(setting: Setting, *, relation: PairRelation = "add_remove") -> Claim:
    """The claim for Poisson batches by dp-accounting or, if that is missing, our own accountant; it says which."""
    return guarantees.poisson_training(
        rate=setting.rate,
        noise_multiplier=setting.noise_multiplier,
        steps=setting.steps,
        relation=relation,
        accountant="pld" if importlib.util.find_spec("dp_accounting") else "certified",
    )


def by_sampler(sampler: str, setting: Setting) -> Claim:
    """The claim for steps with this sampler, the noisy sums released unnormalised."""
    require("sampler", sampler in SAMPLERS, f"one of {SAMPLERS}", sampler)
    noise = setting.noise_multiplier
    if sampler == "poisson":
        if setting.steps == 1:
            return guarantees.subsampled_gaussian(rate=setting.rate, noise_multiplier=noise)
        return poisson(setting)
    one_epoch = {
        "shuffle": guarantees.fixed_batch_shuffle,
        "shuffle-upper": guarantees.fixed_batch_upper,
        "isolated-shuffle": guarantees.isolated_shuffle,
        "balls-and-bins": guarantees.balls_and_bins,
    }
    if sampler == "deterministic":
        claim = guarantees.deterministic_batches(noise_multiplier=noise)
    else:
        claim = one_epoch[sampler](rounds=setting.rounds, noise_multiplier=noise)
    return claim if setting.epochs == 1 else claim.compose(setting.epochs)


def by_normaliser(normalise_by: str, setting: Setting) -> Claim:
    """The leak of steps with this divisor of the noisy sum: exact for aligned, opposite gradients."""
    require("normalise-by", normalise_by in NORMALISERS, f"one of {NORMALISERS}", normalise_by)
    if setting.records is None or setting.dimension is None:
        raise ValueError("--normalise-by needs --records and --dimension: the leak grows with the dimension.")
    claim = guarantees.normalised_round(
        normalise_by=cast(Any, normalise_by),
        records=setting.records,
        rate=setting.rate,
        noise_multiplier=setting.noise_multiplier,
        dimension=setting.dimension,
    )
    return claim if setting.steps == 1 else claim.compose(setting.steps)


def print_claims(claims: list[Claim], summaries: list[Summary]) -> None:
    """Print one column per claim and one row per way of reporting."""
    console = Console(width=log_width())
    table = Table(
        caption="'mu' and 'regret' hold for the range of alpha that is printed with them.", caption_justify="left"
    )
    table.add_column("")
    for claim in claims:
        table.add_column(one_a_line(claim.describe()), justify="right", overflow="fold")
    rows = [_rows(claim, summary) for claim, summary in zip(claims, summaries, strict=True)]
    for name in rows[0]:
        table.add_row(name, *(row[name] for row in rows))
    console.print(table)
    for claim, summary in zip(claims, summaries, strict=True):
        whose = f"{claim.describe()}: " if len(claims) > 1 else ""
        console.print(f"{whose}{summary.recommendation}.", highlight=False)
    for line in shuffled_answer(claims, summaries):
        console.print(line, highlight=False)


def one_a_line(call: str) -> str:
    """A call as text with one argument per line; a list among the arguments stays on one line."""
    depth, written = 0, ""
    for before, letter in zip(f" {call}", call, strict=False):
        depth += (letter in "([") - (letter in ")]")
        written += "\n" if letter == " " and before == "," and depth == 1 else letter
        written += "\n" if letter == "(" and depth == 1 else ""
    return written


def shuffled_answer(claims: list[Claim], summaries: list[Summary]) -> list[str]:
    """What holds if the accountant assumes Poisson batches and the loader shuffles, if both claims are there."""
    found = {claim.name: (claim, summary) for claim, summary in zip(claims, summaries, strict=True)}
    if "poisson_training" not in found:
        return []
    training, promise = found["poisson_training"]

    def of(name: str) -> Summary | None:
        claim, summary = found.get(name, (None, None))
        noise = training.parameters["noise_multiplier"]
        same = claim is not None and claim.steps == training.steps and claim.parameters["noise_multiplier"] == noise
        return summary if same else None

    leak, guarantee = of("fixed_batch_shuffle"), of("fixed_batch_upper")
    if leak is None and guarantee is None:
        return []
    return [
        shuffled_sentence(
            promised,
            leak=None if leak is None else leak.ranges[at],
            leak_name="fixed_batch_shuffle",
            guarantee=None if guarantee is None else guarantee.ranges[at],
        )
        for at, promised in enumerate(promise.ranges)
    ]


def shuffled_sentence(
    promised: EpsilonRange, *, leak: EpsilonRange | None, leak_name: str, guarantee: EpsilonRange | None
) -> str:
    """What an epsilon for Poisson batches is worth for shuffled batches, at one delta."""
    epsilon = at_most(promised.epsilon, ".4g")
    parts = [f"Batches of a shuffled loader, delta {promised.delta:g}: Poisson's epsilon {epsilon} is"]
    parts.append("broken;" if leak is not None and leak.at_least > promised.at_most else "no promise about them;")
    if leak is not None:
        parts.append(f"at least {at_least(leak.at_least, '.4g')} leaks ({leak_name});")
    if guarantee is None:
        parts.append("add --sampler shuffle-upper for what is guaranteed.")
    else:
        parts.append(f"at most {at_most(guarantee.at_most, '.4g')} is guaranteed (fixed_batch_upper).")
    return " ".join(parts)


def _rows(claim: Claim, summary: Summary) -> dict[str, str]:
    low, high = summary.alpha_range
    return {
        **{f"epsilon at delta {found.delta:g}": found.says for found in summary.ranges},
        "delta at epsilon 0 (advantage)": at_most(summary.total_variation, ".4g"),
        "separation kappa": f"{summary.separation:.4g}",
        f"mu on alpha [{low:g}, 1-{1 - high:g}]": at_most(summary.mu_star, ".4g"),
        "regret of reporting that mu": f"{summary.regret:.2g}" if math.isfinite(summary.mu_star) else "-",
        "numerical error": f"{summary.error:.1g}",
        "neighbours": claim.relation,
        "for one": claim.unit,
        "adversary sees": claim.observation,
        "source": claim.source,
    }


def claim_json(claim: Claim, summary: Summary) -> dict[str, Any]:
    """A claim as plain data, with what is known of each epsilon."""
    return {
        "claim": claim.describe(),
        "relation": claim.relation,
        "unit": claim.unit,
        "observation": claim.observation,
        "source": claim.source,
        **dataclasses.asdict(summary),
        # nobody reports an infinite mu
        "regret": summary.regret if math.isfinite(summary.mu_star) else None,
        "ranges": [
            dataclasses.asdict(found) | {"known": found.known, "promised": found.claimed, "says": found.says}
            for found in summary.ranges
        ],
    }
