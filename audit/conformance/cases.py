"""The pairs on which a DP-SGD step is audited: each is where some family of bugs shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from guarantees.claim import Claim
    from mechanisms.pairs.neighbours import Neighbours, Relation

SIGNS = 20_261_115
"""Seed of the dense direction's signs: fixed, so that a red build stays red."""


FEWEST = 2000
"""Trials that no case goes below, if so many are asked for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One audit: the common records' gradients and the differing one's, in units of the clipping bound.

    A gradient is ``length`` times a direction. Every record has one gradient a step, ``steps`` of them; ``turn`` is the
    factor from one step's gradients to the next's.
    """

    why: str
    others: tuple[float, ...] = (0.0, 0.0, 0.0)
    length: float = 10.0
    direction: str = "dense"
    rate: float = 1.0
    clip: float = 1.0
    noise_multiplier: float = 1.0
    steps: int = 1
    turn: float = 1.0
    first: bool = False
    part: float = 1.0
    """Of the trials: less where what goes wrong shows in every trial, or where a trial takes many steps."""

    def trials(self, stated: int) -> int:
        """Outputs that are judged where ``stated`` are asked for: the case's part, but not below ``FEWEST``."""
        return stated if stated <= FEWEST else 2 * (max(FEWEST, int(self.part * stated)) // 2)

    def settings(self) -> dict[str, float]:
        """What ``make_step`` is given."""
        return {"rate": self.rate, "clip": self.clip, "noise_multiplier": self.noise_multiplier}

    def neighbours(self, sizes: tuple[int, ...], relation: Relation) -> Neighbours:
        """The pair, as arrays (records, steps * coordinates); under substitution the opposite stands in its place."""
        from mechanisms.pairs.neighbours import Neighbours

        unit = self.clip * np.concatenate(
            [self.turn**step * DIRECTIONS[self.direction](sizes) for step in range(self.steps)]
        )
        others = np.outer(self.others, unit)
        place = {"add_remove": [], "zero_out": [0 * unit], "substitution": [-self.length * unit]}[relation]

        def dataset(more: list[np.ndarray]) -> np.ndarray:
            rows = [*more, *others] if self.first else [*others, *more]
            return np.asarray(rows, np.float32)

        return Neighbours(
            without=dataset([np.zeros_like(row) for row in place] if np.isnan(self.length) else place),
            with_record=dataset([self.length * unit]),
            relation=relation,
            name="conformance",
            index=0 if self.first else -1,
            parameters={"others": list(self.others), "length": self.length, "direction": self.direction},
        )

    def claim(self, relation: Relation) -> Claim:
        """What accountants promise about it."""
        import guarantees

        stated: dict[str, Any] = {"rate": self.rate, "noise_multiplier": self.noise_multiplier, "relation": relation}
        if self.steps == 1:
            return guarantees.subsampled_gaussian(**stated)
        return guarantees.poisson_training(**stated, steps=self.steps, accountant="certified")


def _dense(sizes: tuple[int, ...]) -> np.ndarray:
    """Equally large everywhere, with signs that nothing else has."""
    total = sum(sizes)
    return np.random.default_rng(SIGNS).choice([-1.0, 1.0], total) / np.sqrt(total)


def _every_tensor(sizes: tuple[int, ...]) -> np.ndarray:
    """One coordinate of each tensor, equally large."""
    unit = np.zeros(sum(sizes))
    unit[np.cumsum(sizes) - 1] = 1 / np.sqrt(len(sizes))
    return unit


def _last(sizes: tuple[int, ...]) -> np.ndarray:
    unit = np.zeros(sum(sizes))
    unit[-1] = 1.0
    return unit


def _first(sizes: tuple[int, ...]) -> np.ndarray:
    """The first coordinate of each tensor, equally large."""
    unit = np.zeros(sum(sizes))
    unit[np.cumsum((0, *sizes[:-1]))] = 1 / np.sqrt(len(sizes))
    return unit


DIRECTIONS = {"dense": _dense, "every_tensor": _every_tensor, "first": _first, "last": _last}

STEP_CASES: Mapping[str, Case] = {
    "dense": Case(why="a gradient that is too long, in every coordinate", clip=2.0),
    "every_tensor": Case(why="too long, one coordinate of each tensor", direction="every_tensor", clip=3.0),
    "last_coordinate": Case(why="too long, in the last coordinate alone", direction="last", others=(0.0,)),
    "barely_too_long": Case(why="longer than the bound by a little", length=1.4, clip=0.5),
    "opposed": Case(why="too long, the others against it, in front", others=(-1.0,) * 3, first=True),
    "duplicates": Case(why="four equal records", others=(1.0,) * 3, length=1.0),
    "tiny": Case(why="gradients whose squares vanish", others=(1e-25, 0.0), length=1e-25, part=0.5),
    "huge": Case(why="a gradient whose square overflows", length=1e25, part=0.5),
    "not_a_number": Case(why="a gradient of NaN", others=(1.0,) * 3, length=float("nan"), part=0.5),
    "small_rate": Case(why="few records are taken", rate=0.1, noise_multiplier=0.3),
    "medium_rate": Case(why="little noise, two records against it", others=(-1.0,) * 2, rate=0.7, noise_multiplier=0.5),
    "large_rate": Case(why="much noise, most records are taken", others=(-1.0,), rate=0.9, noise_multiplier=4.0),
    "own_noise": Case(
        why="the first record, whose draw the first noise repeats if both have one key",
        others=(0.0,),
        direction="first",
        first=True,
        rate=0.7,
        noise_multiplier=0.25,
    ),
}
"""What a single step is audited on."""

TRAINING_CASES: Mapping[str, Case] = {
    "opposite_steps": Case(why="two steps with opposite gradients", others=(0.0,), steps=2, turn=-1.0, part=0.5),
    "equal_steps": Case(why="two steps with equal gradients", others=(0.0,), steps=2, part=0.5),
    "epoch": Case(why="an epoch of four steps", others=(0.0,) * 3, rate=0.25, noise_multiplier=0.3, steps=4, part=0.4),
    "many_steps": Case(why="six steps", others=(0.0,), rate=0.2, noise_multiplier=0.7, steps=6, part=0.8),
    "own_noise_steps": Case(
        why="the same in two steps",
        others=(0.0,),
        direction="first",
        first=True,
        # little noise tells who was taken; what is to be learnt is what else tells it, and that takes all trials
        rate=0.6,
        noise_multiplier=0.1,
        steps=2,
    ),
}
"""What a training of several steps is audited on."""
