"""SciPy's distributions, imported when one is first asked: importing scipy.stats takes longer than some commands."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any


@dataclasses.dataclass(frozen=True)
class Distribution:
    """A distribution of scipy.stats by its name."""

    name: str

    def _own(self) -> Any:
        return getattr(importlib.import_module("scipy.stats"), self.name)

    def __call__(self, *parameters: Any) -> Any:
        """The distribution with these parameters."""
        return self._own()(*parameters)

    def __getattr__(self, question: str) -> Any:
        """Its ``cdf``, ``ppf`` and so on."""
        if question.startswith("__"):
            raise AttributeError(question)
        return getattr(self._own(), question)


binom = Distribution("binom")
chi2 = Distribution("chi2")
f = Distribution("f")
nct = Distribution("nct")
norm = Distribution("norm")
