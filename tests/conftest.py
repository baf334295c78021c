"""Many tests compile the same programs: they share JAX's compilation cache, across workers and runs.

XLA optimises little here: most programs run once on small arrays, and compiling them is a third of the suite's time.
`make test-full` and a caller's own XLA_FLAGS keep XLA's defaults.

Property tests draw the same examples in every run: a red build means that something changed.
"""

import os
from pathlib import Path

from hypothesis import settings

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
