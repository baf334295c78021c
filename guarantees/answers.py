"""Class decorators that answer questions of a contract in one line: by a constant, or as a held object answers them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

Owner = TypeVar("Owner")


def answers(**given: Any) -> Callable[[type[Owner]], type[Owner]]:
    """Decorator: every object of the class has these attributes with these values."""
    return _filled(given)


def hands_on(held: str, *questions: str) -> Callable[[type[Owner]], type[Owner]]:
    """Decorator: objects of the class answer these questions with the attributes of the object called ``held``."""
    return _filled({question: property(operator.attrgetter(f"{held}.{question}")) for question in questions})


def _filled(given: dict[str, Any]) -> Callable[[type[Owner]], type[Owner]]:
    def filled(owner: type[Owner]) -> type[Owner]:
        for question, answer in given.items():
            setattr(owner, question, answer)
        return owner

    return filled
