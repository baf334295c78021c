"""Where batches are drawn, a replay of right code looks at three batches more of each kind for groups of records.

Here it looks at one, and only where groups or many styles of right code are the subject; in `make test-full` at three,
everywhere: these looks were half of what the replays of these tests took.
"""

import pytest

from audit.diagnosis.explain.jaxprs import further_looks

LOOKED = ("test_explain_groups", "test_explain_jax", "test_explain_microbatches", "test_explain_network")


@pytest.fixture(autouse=True)
def _looks(monkeypatch, full, request):
    if not full:
        monkeypatch.setattr(further_looks, "DRAWN", int(request.path.stem in LOOKED))
