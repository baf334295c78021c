"""The programs of audits to come, compiled while those before them are judged.

XLA compiles without the interpreter's lock, and statistics are Python's: on two cores one need not wait for the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

from audit.diagnosis.all_questions import drawn_at_once
from audit.suites.build import Built
from audit.trials.both_sides import both_sides, is_foreign
from audit.trials.executor import LOCAL, Executor
from audit.trials.keys import key_from_seed
from audit.trials.traced import TracedSides
from distinguishers.contract import Learner
from mechanisms import structure
from mechanisms.contract import Step
from mechanisms.pairs.neighbours import GradientTable
from mechanisms.simulators.training import Repeated
from mechanisms.structure import is_structured

TOGETHER = 2
"""Audits whose programs are compiled at the same time: the statistics beside them take half as long as compiling."""


@contextlib.contextmanager
def compiled_ahead(executor: Executor) -> Iterator[Callable[[Built], None]]:
    """A function that has an audit's programs compiled, two audits at a time, until the block ends.

    What is under way then is finished; an error, or Ctrl-C, does not wait for it.
    """
    pool = ThreadPoolExecutor(TOGETHER, thread_name_prefix="compile-ahead")
    added: list[Future[None]] = []

    def add(audit: Built) -> None:
        if executor is LOCAL:
            added.append(pool.submit(compile_programs, audit))

    try:
        yield add
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    # joined threads count as ended where Ctrl-C breaks off the join, and Python would then end while XLA compiles
    wait([each for each in added if not each.cancelled()])


def is_ours(audit: Built) -> bool:
    """Whether nothing but this package's code is called, and no dataset is laid out.

    A user's function may not bear a second thread, and a second copy of a large dataset may not fit.
    """
    step, pair, score = audit.mechanism, audit.neighbours, audit.distinguisher
    called = step.step if isinstance(step, Repeated) else step
    if isinstance(called, Step) or not all(map(structure.is_ours, (step, called, score))):
        return False
    if is_foreign(step) or not is_structured(score):
        return False
    tables = all(isinstance(dataset, GradientTable) for dataset in (pair.without, pair.with_record))
    return tables and step.reads_tables and is_structured(step.release_on(pair.without))


def compile_programs(audit: Built) -> None:
    """What counts its scores and, where a violation is expected, what draws the outputs of its diagnosis."""
    spec, step, score = audit.spec, audit.mechanism, audit.distinguisher
    # what fails here fails in the audit's own turn, which says whose it is
    with contextlib.suppress(Exception):
        if not is_ours(audit):
            return
        sides = both_sides(step, audit.neighbours)
        assert isinstance(sides, TracedSides)
        assert score is not None
        assert not isinstance(score, Learner)
        for program in sides.programs(score):
            program.compile()
        if spec.expect == "violation" and spec.diagnose and step.kind in ("vector", "transcript"):
            size = drawn_at_once(sides.layout(), spec.trials // 2)
            for side in ("without", "with"):
                sides.piece(side, key_from_seed(0), 0, size, size=size)
