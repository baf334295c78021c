"""Questions of a contract that a class answers in one line: always so, or as something does that its objects hold."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

Owner = TypeVar("Owner")


def answers(**given: Any) -> Callable[[type[Owner]], type[Owner]]:
    """A class whose objects all answer these questions so."""
    return _filled(given)


def hands_on(held: str, *questions: str) -> Callable[[type[Owner]], type[Owner]]:
    """A class whose objects answer these questions as what they hold by a name does."""
    return _filled({question: property(operator.attrgetter(f"{held}.{question}")) for question in questions})


def _filled(given: dict[str, Any]) -> Callable[[type[Owner]], type[Owner]]:
    def filled(owner: type[Owner]) -> type[Owner]:
        for question, answer in given.items():
            setattr(owner, question, answer)
        return owner

    return filled
