"""Join a Dask cluster, or start one on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Any

from audit.trials.cluster import START_SECONDS, ClusterError, DaskExecutor, installed_dask
from guarantees.checks import Count, checked

SETTINGS = {
    # a worker may have a child, in which foreign code keeps its time-out
    "distributed.worker.daemon": False,
    # one that dies twice within this time is not started again
    "distributed.deploy.lost-worker-timeout": "1 day",
}
"""Settings of Dask for a cluster that is started here."""


@checked
def dask_executor(scheduler: str | None = None, *, workers: Count | None = None) -> DaskExecutor:
    """The workers of a Dask cluster: of the one whose scheduler has this address, or of one started here.

    Close it, or use it in ``with``. Records are the same as without it. Dask runs whatever code its members send:
    connect only to a cluster whose members you trust (docs/cluster.md).

    Args:
      scheduler: an address (``tcp://host:8786``) or a scheduler file (``.json``); by default processes are started on
        this machine.
      workers: how many to wait for there (by default 1), or to start here (by default one a processor).

    Returns:
      The executor, for ``audit.Execution`` and ``audit.run_suite``.

    Raises:
      ImportError: Dask Distributed is not installed.
      ClusterError: no scheduler answers, too few workers join, or theirs are other versions than here.

    Examples:
      With ``pip install 'dpsgd-audit[cluster]'``, in a script under ``if __name__ == "__main__":``::

        with audit.dask_executor(workers=2) as executor:
            execution = audit.Execution(executor=executor)
            record = audit.run_audit(
                step, pair, claim=claim, trials=2000, risk=0.05, key=jax.random.key(0), execution=execution
            )
    """
    distributed = installed_dask()
    if scheduler is None:
        count, held = workers or os.cpu_count() or 1, contextlib.ExitStack()
        cluster = _local_cluster(distributed, count, held)
        return DaskExecutor(distributed.Client(cluster), workers=count, held=held)
    place = {"scheduler_file": _awaited_file(scheduler)} if scheduler.endswith(".json") else {"address": scheduler}
    try:
        client = distributed.Client(**place, timeout=START_SECONDS / 4)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {scheduler!r} ({error}); start one (dask scheduler) or check the address."
        ) from error
    return DaskExecutor(client, workers=workers or 1)


def _awaited_file(file: str) -> str:
    """Wait for a scheduler file, which the scheduler writes when it has started."""
    end = time.monotonic() + START_SECONDS
    while not os.path.isfile(file):
        if time.monotonic() > end:
            raise ClusterError(
                f"no scheduler wrote {file!r} within {START_SECONDS:g} s; start one: "
                f"dask scheduler --scheduler-file {file}"
            )
        time.sleep(0.2)
    return file


def _local_cluster(distributed: Any, workers: int, held: contextlib.ExitStack) -> Any:
    """Start worker processes on this machine, until ``held`` is closed."""
    from dask import config

    held.enter_context(config.set(SETTINGS))
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
        silence_logs=logging.CRITICAL,
    )
    held.callback(cluster.close, timeout=10)
    return cluster
