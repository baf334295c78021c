"""'My optimizer is the subsampled Gaussian mechanism': a class of audits that library authors subclass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from audit.conformance.cases import STEP_CASES, TRAINING_CASES, Case
from audit.trials.user_code_errors import contained
from guarantees.checks import require

if TYPE_CHECKING:
    from audit.conformance.library import Library
    from mechanisms.pairs.neighbours import Relation

LIBRARIES = ("jax", "numpy", "torch")
DIMENSION = 30
LAW_TRIALS = 2000
LAW_STEPS = 3
LAW_CLIP = 2.0
REFUSALS = (ValueError, ArithmeticError, AssertionError, RuntimeError)
"""What a step may raise at a gradient of NaN."""


class SubsampledGaussianConformance:
    """Audits of a DP-SGD step, and of a training of several, against what accountants claim; and of its exact law.

    Subclass it in a test file and define ``make_step``, and ``make_training`` if the library has trainings. A step gets
    a key (``library = "jax"``) or an integer seed (``"numpy"``, ``"torch"``, whose global generators are also seeded
    with it), and per-example gradients: an array (records, coordinates), or with ``tensors`` a dict of arrays
    (records, *shape). It takes each record with probability ``rate``, clips each gradient to ``clip`` and returns the
    noisy sum in the same form.

    Two kinds of failure: 'violation' is a proven leak; 'not the mechanism stated' means that the step follows another
    law than the stated one. A run without failures proves neither privacy nor correctness: it did not find these bugs
    on these pairs.

    Attributes:
      library: ``"jax"``, ``"numpy"`` or ``"torch"``.
      tensors: shapes of the gradient's tensors by name; without it a gradient is one flat array.
      divisor: public constant by which the sum is divided. One that depends on the data is a leak.
      trials: outputs that each audit judges; by default 10,000, or what ``--dp-audit-trials`` says.
      relation: which neighbours the audits use.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from audit.conformance import SubsampledGaussianConformance
      >>> class TestMyStep(SubsampledGaussianConformance):
      ...     def make_step(self, *, rate, clip, noise_multiplier):
      ...         def step(key, gradients):
      ...             key_batch, key_noise = jax.random.split(key)
      ...             taken = jax.random.bernoulli(key_batch, rate, (len(gradients), 1))
      ...             lengths = jnp.linalg.norm(gradients, axis=1, keepdims=True)
      ...             total = jnp.sum(taken * gradients / jnp.maximum(lengths / clip, 1.0), axis=0)
      ...             return total + noise_multiplier * clip * jax.random.normal(key_noise, total.shape)
      ...         return step
      >>> TestMyStep.library
      'jax'
    """

    library: Library = "jax"
    tensors: Mapping[str, tuple[int, ...]] | None = None
    divisor = 1.0
    trials: int | None = None
    relation: Relation = "add_remove"

    def make_step(self, *, rate: float, clip: float, noise_multiplier: float) -> Callable[..., Any]:
        """One step of the implementation under audit."""
        raise TypeError(f"{type(self).__name__} must define make_step(self, *, rate, clip, noise_multiplier).")

    def make_training(self, *, steps: int, rate: float, clip: float, noise_multiplier: float) -> Callable[..., Any]:
        """Several steps: a function of the key or seed and a list of per-example gradients, one a step.

        It returns the list of noisy sums. The right thing draws fresh batches and fresh noise at every step.
        """
        pytest.skip(f"{type(self).__name__} does not define make_training: reuse between steps was not looked for")

    @pytest.mark.parametrize("case", STEP_CASES)
    def test_a_step_keeps_its_promise(self, dp_audit, case):
        """One step on each pair, against the accountants' claim."""
        self._audit(dp_audit, STEP_CASES[case])

    @pytest.mark.parametrize("case", TRAINING_CASES)
    def test_a_training_keeps_its_promise(self, dp_audit, case):
        """Several steps on each pair, against the claim about all of them."""
        self._audit(dp_audit, TRAINING_CASES[case])

    def test_a_step_is_the_mechanism_stated(self, dp_audit):
        """One step at little noise against its exact law."""
        self._compare(dp_audit, None)

    def test_a_training_is_the_mechanism_stated(self, dp_audit):
        """Three steps at little noise against their exact law."""
        self._compare(dp_audit, LAW_STEPS)

    def _sizes(self) -> tuple[int, ...]:
        if self.tensors is None:
            return (DIMENSION,)
        named = isinstance(self.tensors, Mapping) and self.tensors
        require(f"tensors of {type(self).__name__}", named, "a dict of shapes by name", self.tensors)
        return tuple(map(math.prod, self.tensors.values()))

    def _mechanism(self, settings: Mapping[str, float], steps: int | None) -> Any:
        from audit.conformance.library import Form, LibraryStep

        own = type(self).__name__
        require(f"library of {own}", self.library in LIBRARIES, f"one of {LIBRARIES}", self.library)
        with contained():
            made = self.make_step(**settings) if steps is None else self.make_training(steps=steps, **settings)
        asked = f"{own}.make_{'step' if steps is None else 'training'}"
        require(f"what {asked} returns", callable(made), "a function of a key or seed and gradients", made)
        form = Form(tensors=self.tensors, dimension=sum(self._sizes()), steps=steps)
        return LibraryStep(step=made, form=form, library=self.library, settings=settings)

    def _audit(self, dp_audit: Any, case: Case) -> None:
        mechanism = self._mechanism(case.settings(), None if case.steps == 1 else case.steps)
        pair = case.neighbours(self._sizes(), self.relation)
        if math.isnan(case.length) and self.library != "jax":
            _skip_where_refused(mechanism, pair.with_record)
        trials = case.trials(dp_audit.trials(self.trials))
        dp_audit(mechanism, pair, claim=case.claim(self.relation), trials=trials)

    def _compare(self, dp_audit: Any, steps: int | None) -> None:
        import numpy as np

        from audit.conformance import law
        from audit.trials.both_sides import both_sides
        from audit.trials.keys import both_keys
        from mechanisms.pairs.neighbours import Neighbours

        dimension = sum(self._sizes())
        settings = {"rate": law.RATE, "clip": LAW_CLIP, "noise_multiplier": law.NOISE}
        mechanism = self._mechanism(settings, steps)
        given = law.gradients(dimension, LAW_CLIP, steps or 1)
        rows = given.reshape(len(given), -1)
        spent = dp_audit.spend()
        # one dataset: both sides are drawn, under keys of their own, and half of the trials is one side's
        pair = Neighbours(without=rows, with_record=rows, relation="zero_out", name="law")
        half = LAW_TRIALS // 2
        outputs = np.concatenate(both_sides(mechanism, pair).outputs(both_keys(spent.key), half, size=half))
        found = law.judge(self.divisor * outputs.reshape(LAW_TRIALS, steps or 1, dimension), given, clip=LAW_CLIP)
        dp_audit.tell("p_value", found.p_value)
        if found.p_value <= spent.risk:
            again = dp_audit.reproduce()
            pytest.fail(
                f"not the mechanism stated (p-value {found.p_value:.2g}): {found.worst.what}.\n"
                f"  looked at: {LAW_TRIALS:,} trials, {len(found.findings)} statistics of known law, {settings}\n"
                f"  this is no proof of a leak: the audits of this class look for one.\n  reproduce: {again}",
                pytrace=False,
            )


def _skip_where_refused(mechanism: Any, dataset: Any) -> None:
    """A library may refuse a gradient of NaN; that it stopped tells whoever sees it that there was one."""
    import numpy as np

    try:
        mechanism.prepare(dataset)(np.zeros(1, np.uint64))
    except REFUSALS as refusal:
        pytest.skip(f"a gradient of NaN is refused ({type(refusal).__name__}): nothing is released")
