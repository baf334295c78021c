"""Many tests compile the same programs: they share JAX's compilation cache, across workers and runs.

XLA optimises little here: most programs run once on small arrays, and compiling them was a third of the suite's time.
Its older code generator compiles three times as fast. `make test-full` and a caller's own XLA_FLAGS keep XLA's
defaults.

Workers take whole files (``--dist loadfile``): what a file's tests share, programs above all, is made once, and the
blocks of a document build on each other.

``@pytest.mark.few(n)``: of many cases that show one thing, n spread over all of them are fast, the others long.

Property tests draw the same examples in every run: a red build means that something changed. Where a test does not say
how many, there are 40 of them, in `make test-full` 100.
"""

import ctypes
import gc
import importlib.metadata
import importlib.util
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".pytest_cache" / "jax"))
os.environ.setdefault("DPSGD_AUDIT_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "kept"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# matrices are small: a second thread of BLAS mostly waits, in a loop, and took a quarter of the laws' time
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# and so does one of PyTorch, which took a sixth of its tests' time
os.environ.setdefault("OMP_NUM_THREADS", "1")
MEMORY = 1.6
"""GiB above which a worker forgets compiled programs; the compilation cache keeps them, for the price of a trace."""
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PEAKS = []
gc.disable()
if WORKER % 2 and importlib.util.find_spec("torch"):
    # in a fresh environment nothing is compiled: one of two workers begins with PyTorch, the other one with JAX
    importlib.import_module("torch")


def fast_to_compile() -> str:
    """Flags for XLA. It aborts at one that it does not know, so those of one release are for that release alone."""
    flags = "--xla_backend_optimization_level=0"
    if importlib.metadata.version("jaxlib").startswith("0.10."):
        flags += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    return flags


# workers inherit what the process that starts them sets here
FULL = os.environ.setdefault("XLA_FLAGS", fast_to_compile()) != fast_to_compile()
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=100 if FULL else 40)
settings.load_profile("repeatable")
if not FULL and hasattr(providers, "_local_constants"):
    # reading the constants of all our sources takes 2 s in a fresh clone, and which are drawn would depend on what was
    # imported before
    providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Every second worker goes through the folders backwards.

    So each of two rewrites the assertions of half of the files in a fresh clone, and reads the other half's bytecode.
    """
    report = yield
    if WORKER % 2 and isinstance(collector, pytest.Directory):
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """All workers have one order; all but a few cases of the tests that ask for it are marked as long."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.path)
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("long"):
            cases[item.nodeid.split("[")[0]].append(item)
    for found in cases.values():
        (number,) = found[0].get_closest_marker("few").args
        kept = {round(i * (len(found) - 1) / max(number - 1, 1)) for i in range(number)}
        for i, item in enumerate(found):
            if i not in kept:
                item.add_marker(pytest.mark.long)


def pytest_collection_finish():
    """What was imported and collected stays: the garbage collector need not look at it, meanwhile or later.

    Tracing makes many objects and few cycles: looking for these after every 700 objects took 4% of the time.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 20, 20)
    if not FULL and "jax" in sys.modules:
        from jax._src.interpreters import mlir

        if hasattr(mlir, "make_ir_context"):
            mlir.make_ir_context = Contexts(mlir.make_ir_context)


class Contexts(threading.local):
    """JAX loads all dialects of MLIR for each program that it lowers, 5 ms: here once for a thread and a file.

    A program that is lowered while another one is gets a context of its own.
    """

    def __init__(self, make):
        self.make, self.kept = make, None

    def __call__(self):
        from jax.extend.mlir import ir

        if ir.Context.current is not None:
            return self.make()
        self.kept = self.kept or self.make()
        return self.kept


def pytest_runtest_setup():
    """No test gets a number that an earlier one computed, maybe with other constants."""
    if kept := sys.modules.get("guarantees.laws.kept"):
        kept.REMEMBERED.clear()


def pytest_sessionfinish(session):
    """A worker tells the session that started it how much memory it took at most."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None and sys.platform == "linux":
        import resource

        told["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """See above."""
    PEAKS.append(getattr(node, "workeroutput", {}).get("peak"))


def pytest_terminal_summary(terminalreporter):
    """See above."""
    if peaks := [f"{peak:.1f}" for peak in PEAKS if peak is not None]:
        terminalreporter.write_line(f"peak memory of the workers: {', '.join(peaks)} GiB")


@pytest.fixture(scope="session")
def full():
    """Whether `make test-full` runs."""
    return FULL


@pytest.fixture(autouse=True, scope="module")
def memory_is_given_back(request):
    """After a file, what its helpers remember is forgotten, and the system gets back what glibc would keep."""
    yield
    for helper in vars(request.module).values():
        if getattr(helper, "__module__", None) == request.module.__name__ and hasattr(helper, "cache_clear"):
            helper.cache_clear()
    if "jax" in sys.modules and isinstance(make := sys.modules["jax._src.interpreters.mlir"].make_ir_context, Contexts):
        make.kept = None
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
        if "jax" in sys.modules and resident() > MEMORY:
            sys.modules["jax"].clear_caches()
            libc.malloc_trim(0)


def resident() -> float:
    """GiB that this process holds now, on Linux."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**30
