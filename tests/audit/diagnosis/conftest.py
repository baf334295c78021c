"""Where batches are drawn, a replay of right code looks at three batches more of each kind for groups of records.

Here it looks at one, in `make test-full` at three: these looks were half of what the replays of these tests took.
"""

import pytest

from audit.diagnosis.explain.jaxprs import group_clipping


@pytest.fixture(autouse=True)
def _looks(monkeypatch, full):
    if not full:
        monkeypatch.setattr(group_clipping, "DRAWN", 1)
