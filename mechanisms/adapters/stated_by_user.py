"""What users state about their own code: its bound, its noise, and the gradients that it clips.

Nothing of it changes what is run or judged; scores and diagnoses read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mechanisms.contract import Described
from mechanisms.names import place_of
from mechanisms.pairs.lent import copied


def stated_numbers(*, clip: float | None, noise_multiplier: float | None) -> Mapping[str, float]:
    """The known ones of clipping norm and noise multiplier, as records have them."""
    both = {"clip": clip, "noise_multiplier": noise_multiplier}
    return {name: value for name, value in both.items() if value is not None}


def stated_functions(**given: Callable[..., Any] | None) -> Mapping[str, str]:
    """Places of the given functions: another audit needs them to repeat this one."""
    return {name: place_of(function) for name, function in given.items() if function is not None}


class StatedByUser(Described, Protocol):
    """A mechanism that is code of a user's: its gradients are what they tell, unless it knows how to compute them."""

    own_gradients: Callable[[Any], Any] | None

    @property
    def gradients_told(self) -> bool:
        """Whether the user gave the gradients."""
        return self.own_gradients is not None

    def gradients(self, dataset: Any) -> Any:
        """The user's per-example gradients; a ValueError says how to tell them."""
        if self.own_gradients is None:
            raise ValueError(f"{self.name} does not say what its per-example gradients are; pass gradients=.")
        return self.own_gradients(copied(dataset))
