"""Audits of many files ask for the same laws and for the smallest leaks that the same trials would find.

They are kept for all tests of this folder, as commands keep them between runs: each under all that decides it, our code
included. The tests of ``guarantees`` compute everything.
"""

import pytest

from audit.trials.disk_cache import laws_kept


@pytest.fixture(autouse=True, scope="module")
def _laws_are_kept():
    with laws_kept():
        yield
