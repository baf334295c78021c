"""Many tests compile the same programs: they share JAX's compilation cache, across workers and runs.

Property tests draw the same examples in every run: a red build means that something changed.
"""

import os
from pathlib import Path

from hypothesis import settings

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
