"""The border with somebody else's law: it answers what it likes, and everything may be asked of it."""

import numpy as np
import pytest

from guarantees.laws.adapter import NEEDED, USUAL, as_law
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.law import LossLaw, reverse
from guarantees.trade_off import TradeOff

INNER = GaussianLaw(mu=1.0, rate=0.5)
LISTED = [name for name in USUAL if name not in ("work", "compose")]


def stranger(*names):
    """A law that inherits nothing and answers these questions."""
    own = {name: getattr(INNER, name) for name in (*NEEDED, *names)}
    return type("Stranger", (), {name: staticmethod(it) if callable(it) else it for name, it in own.items()})()


@pytest.mark.parametrize("names", [[], LISTED, list(USUAL)], ids=["the least", "all but work", "everything"])
def test_a_law_of_ones_own_is_composed_whatever_it_answers(names):
    once = TradeOff(stranger(*names))
    truth = TradeOff(INNER)
    assert once.beta(0.3) == pytest.approx(truth.beta(0.3), rel=1e-9)
    assert once.reverse.delta(0.5) == pytest.approx(truth.reverse.delta(0.5), rel=1e-9)
    twice = once.compose(2)
    assert twice.delta(0.5) == pytest.approx(truth.compose(2).delta(0.5), abs=2 * (twice.error + 1e-9))


def test_one_class_lists_every_question():
    adapted = as_law(stranger())
    for law in (INNER, reverse(INNER), adapted, DiscreteLaw(np.zeros(1), np.ones(1), np.ones(1))):
        assert isinstance(law, LossLaw)
        asked = {name for name in dir(law) if not name.startswith("_")}
        assert asked >= {*NEEDED, *USUAL}
    assert as_law(INNER) is INNER
    assert {"work", "compose", "losses", "noise"} <= set(USUAL)


def test_a_law_without_its_own_tails_cannot_be_made():
    class Half(LossLaw):
        error = 0.0

    with pytest.raises(TypeError, match="tails"):
        Half()
