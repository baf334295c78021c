"""Answer to 'my loader shuffles, my accountant says Poisson': claimed, least leak, guarantee, batches in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

import guarantees
from audit.report.claims import Setting, poisson, shuffled_sentence
from audit.report.stated import Answer, Stated
from audit.report.table import log_width
from guarantees.checks import require
from guarantees.claim import Claim
from guarantees.numerics.rounding import at_least, at_most
from guarantees.summary import EpsilonRange

CLAIMED, LEAKED, GUARANTEED, IN_ORDER = "claimed", "leaked at least", "guaranteed at most", "batches in order"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuffledTraining:
    """Four statements about one training, each with epsilon at some deltas in the worse direction."""

    claims: dict[str, Claim]
    ranges: dict[str, tuple[EpsilonRange, ...]]

    @property
    def sentences(self) -> list[str]:
        """A sentence per delta on what the epsilon for Poisson batches is worth."""
        leak_name = self.claims[LEAKED].name
        return [
            shuffled_sentence(promised, leak=leak, leak_name=leak_name, guarantee=guarantee)
            for promised, leak, guarantee in zip(
                *(self.ranges[name] for name in (CLAIMED, LEAKED, GUARANTEED)), strict=True
            )
        ]

    def shown(self, name: str, at: int) -> str:
        """The epsilon to compare: for a leak its least value, for a promise its largest."""
        found = self.ranges[name][at]
        return at_least(found.at_least, ".4g") if name == LEAKED else at_most(found.at_most, ".4g")


def shuffled_training(setting: Setting, *, deltas: Sequence[float]) -> ShuffledTraining:
    """Stated and actual epsilons of a training with shuffled batches; whole curves would take minutes."""
    noise, rounds, epochs = setting.noise_multiplier, setting.rounds, setting.epochs
    require("rate", rounds > 1, "at most 1/2 (one batch per epoch is not shuffled)", setting.rate)
    upper = guarantees.fixed_batch_upper(rounds=rounds, noise_multiplier=noise)
    order = guarantees.deterministic_batches(noise_multiplier=noise)
    claims = {
        CLAIMED: poisson(setting, relation="zero_out"),
        LEAKED: guarantees.adaptive_shuffle(rounds=rounds, noise_multiplier=noise, epochs=epochs),
        GUARANTEED: upper if epochs == 1 else upper.compose(epochs),
        IN_ORDER: order if epochs == 1 else order.compose(epochs),
    }
    ranges = {name: tuple(claim.epsilon_range(float(d)) for d in deltas) for name, claim in claims.items()}
    return ShuffledTraining(claims=claims, ranges=ranges)


def stated_if_shuffled(found: ShuffledTraining, stated: Stated) -> Answer:
    """Whether a stated epsilon holds, on Poisson batches and on shuffled ones."""
    at = {name: claim.epsilon_range(stated.delta) for name, claim in found.claims.items() if name != IN_ORDER}
    return stated.if_shuffled(at[CLAIMED], at[LEAKED], at[GUARANTEED])


def print_shuffled(found: ShuffledTraining) -> None:
    """Print one row per statement, one column per delta, and the answer in a sentence."""
    console = Console(width=log_width())
    table = Table(title="Epsilon, a record zeroed out, the worse direction")
    for heading in ("", *(f"delta {one.delta:g}" for one in found.ranges[CLAIMED]), "by"):
        table.add_column(heading, justify="left" if heading in ("", "by") else "right", overflow="fold")
    for name, claim in found.claims.items():
        table.add_row(name, *(found.shown(name, at) for at in range(len(found.ranges[name]))), claim.describe())
    console.print(table)
    for line in found.sentences:
        console.print(line, highlight=False)


def shuffled_json(found: ShuffledTraining) -> dict[str, Any]:
    """The statements as plain data."""
    return {
        name: {"claim": claim.describe(), "ranges": [dataclasses.asdict(one) for one in found.ranges[name]]}
        for name, claim in found.claims.items()
    }
