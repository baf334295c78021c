"""Padded Poisson batches share their draws: they are followed and judged."""

from __future__ import annotations

import jax
import pytest
from diagnosis import padded, replayed

from audit.diagnosis.explain import explain

KEY = jax.random.key(3)


def told(step):
    return explain(step, replayed.added(), key=KEY, noise_multiplier=replayed.NOISE)


@pytest.mark.parametrize("padding", padded.RIGHT)
def test_nothing_is_said_about_a_padded_batch(padding):
    explanation = told(padded.RIGHT[padding])
    assert explanation.findings == (), explanation.findings[0].says
    assert [one.multiplier for one in explanation.rounds] == pytest.approx([replayed.NOISE], rel=0.02)


@pytest.mark.parametrize("kind", padded.FAULTY)
def test_faults_of_a_padded_batch_are_found(kind):
    found = told(padded.FAULTY[kind]).findings
    assert [one.kind for one in found][:1] == [kind], found


def test_padding_that_is_summed_is_found():
    found = told(padded.UNMASKED).findings
    assert [one.kind for one in found] == ["too_little_noise"], found
