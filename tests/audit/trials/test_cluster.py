"""A cluster draws the trials that one process draws, whatever its workers do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import cluster_jobs
import foreign
import numpy as np
import pytest
from cluster_jobs import ROWS, record
from toys import PAIR, First, Shift

import audit
import mechanisms
from audit.trials import cluster, remote, start_cluster
from audit.trials.cluster import ClusterError, DaskExecutor
from audit.trials.executor import LOCAL
from audit.trials.remote import Ask, Expected, Payload, UnlikeWorkerError
from audit.trials.start_cluster import dask_executor
from audit.trials.versions import CODE, differences, versions
from audit.trials.workers import ForeignError

distributed = pytest.importorskip("distributed")
EDGES = np.linspace(-1, 2, 7, dtype=np.float32)[None]


@pytest.fixture
def inside():
    """A cluster in this process: its workers are threads, which costs nothing."""
    with distributed.Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        yield DaskExecutor(client, workers=2)


@pytest.fixture(scope="module")
def two():
    with dask_executor(workers=2) as executor:
        yield executor


@pytest.fixture(scope="module")
def one():
    with dask_executor(workers=1) as executor:
        yield executor


def counted(executor, step, pair):
    source = executor.sides(mechanisms.mechanism(step), pair).scored(First(), chunk=64)[1].source(cluster_jobs.KEY)
    return [source.cells(*span, EDGES).tolist() for span in ((0, 700), (2**32 - 90, 2**32))]


def test_counts_are_those_of_one_process(inside):
    factor = 2.0

    def own_step(key, dataset):
        return Shift(mu=factor)(key, dataset)

    for step, pair in ((own_step, PAIR), (mechanisms.callable_step(foreign.noisy_sum), ROWS)):
        assert counted(inside, step, pair) == counted(LOCAL, step, pair)


def test_an_error_of_the_code_under_audit_is_told_as_it_is_here(inside):
    with pytest.raises(ForeignError, match=r"trial \d+ on the side .* of fails_sometimes"):
        counted(inside, mechanisms.callable_step(foreign.fails_sometimes), ROWS)


def test_other_versions_are_refused_before_anything_is_drawn(inside, monkeypatch):
    monkeypatch.setattr(cluster, "versions", lambda: {**versions(), "jax": "0.1", CODE: "other"})
    with pytest.raises(UnlikeWorkerError) as caught:
        DaskExecutor(inside._client, workers=1)
    text = str(caught.value)
    assert f"jax: {versions()['jax']} there, 0.1 here" in text
    assert "dpsgd-audit's code" in text
    assert "install the same versions" in text
    assert "numpy" not in text


def test_a_worker_that_joins_later_is_compared_too():
    job = Payload("none", b"never read")
    with pytest.raises(UnlikeWorkerError, match=r"numpy: .* there, 0\.1 here"):
        remote.answer(Expected({"numpy": "0.1"}, None), job, None, Ask("layout"))
    with pytest.raises(UnlikeWorkerError, match="others on gpu: H200"):
        remote.answer(Expected(versions(), "gpu: H200"), job, None, Ask("layout"))
    assert differences(versions(), versions()) == []


def test_what_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr(start_cluster, "START_SECONDS", 1.0)
    with pytest.raises(ClusterError, match="no Dask scheduler answers at 'tcp://"):
        dask_executor("tcp://127.0.0.1:9")
    with pytest.raises(ClusterError, match=r"no scheduler wrote .nowhere\.json. within 1 s"):
        dask_executor("nowhere.json")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'dpsgd-audit\[cluster\]'"):
        dask_executor()


@pytest.mark.long
def test_a_worker_imports_nothing_heavy_before_its_first_trial():
    with dask_executor(workers=1) as fresh:
        (loaded,) = fresh._client.run(lambda: sorted(sys.modules)).values()
    assert "audit.trials.versions" in loaded
    assert not {"jax", "scipy", "torch"} & set(loaded)


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 1])
def test_any_number_of_workers_gives_one_record(one, two, workers):
    step = mechanisms.callable_step(foreign.noisy_sum, workers=workers)
    jobs = [
        lambda **more: record(**more),
        lambda **more: record(policy=audit.Anytime(), trials=20_000, **more),
        lambda **more: record(Shift(mu=2.0), policy=audit.Anytime(), trials=20_000, **more),
        lambda **more: record(step, ROWS, trials=1000, **more),
        lambda **more: record(Shift(mu=2.0), trials=2000, **more),
    ]
    for job in jobs[workers * 3 :]:
        alone = job()
        assert job(executor=one) == alone
        assert job(executor=two) == alone


@pytest.mark.long
def test_a_learnt_score_and_a_command_are_spread_too(two):
    command = mechanisms.command_step(command=(sys.executable, "examples/command/step.py", "1.0", "1.0"))
    given = {"claim": cluster_jobs.CLAIM, "trials": 400, "risk": 0.05, "key": cluster_jobs.KEY, "diagnose": True}
    alone = audit.run_audit(command, ROWS, **given)
    spread = audit.run_audit(command, ROWS, execution=audit.Execution(executor=two), **given)
    assert spread.fit_trials == alone.fit_trials > 0
    assert (spread.grids, spread.points, spread.verdict) == (alone.grids, alone.points, alone.verdict)


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 1])
def test_a_worker_killed_in_the_middle_costs_nothing(workers):
    step = mechanisms.callable_step(foreign.slow_sum, workers=workers)
    alone, killed = record(step, ROWS, trials=3000), []
    with dask_executor(workers=2) as executor:
        pids = list(executor._client.run(os.getpid).values())

        def kill(tally):
            if not killed:
                os.kill(pids[0], signal.SIGKILL)
                killed.append(tally.trials_per_side)

        found = record(step, ROWS, trials=3000, executor=executor, progress=kill)
    assert killed[0] < 1500
    assert found == alone


@pytest.mark.long
def test_a_step_that_ends_every_worker_is_named():
    with dask_executor(workers=2) as executor:
        with pytest.raises(ClusterError, match=r"4 workers died one after the other while .* of dies"):
            record(mechanisms.callable_step(foreign.dies), ROWS, executor=executor, trials=200)
        # in a child of its own it ends that child alone
        with pytest.raises(ForeignError, match=r"died \(exit code 3\)"):
            record(mechanisms.callable_step(foreign.dies, workers=1), ROWS, executor=executor, trials=200)


@pytest.mark.long
def test_a_hanging_step_is_ended_where_it_has_a_child():
    with dask_executor(workers=1) as executor:
        step = mechanisms.callable_step(foreign.hangs, workers=1, timeout=0.5)
        with pytest.raises(ForeignError, match=r"did not answer within 0.5 s"):
            record(step, ROWS, executor=executor, trials=200)


@pytest.mark.long
def test_a_cluster_without_workers_is_an_error(monkeypatch):
    monkeypatch.setattr(cluster, "EMPTY_SECONDS", 3.0)
    step = mechanisms.callable_step(foreign.slow_sum)
    with dask_executor(workers=1) as executor:

        def leave(_):
            executor._client.cluster.scale(0)

        with pytest.raises(ClusterError, match="has had no worker for 3 s"):
            record(step, ROWS, trials=6000, executor=executor, progress=leave)


@pytest.mark.long
def test_a_scheduler_file_leads_to_workers_that_others_started(tmp_path):
    file = str(tmp_path / "scheduler.json")
    here = Path(cluster_jobs.__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parents[1]), str(here), *sys.path])}
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask = [sys.executable, "-m", "dask"]
    place = ["--scheduler-file", file, "--dashboard-address", "127.0.0.1:0"]
    started = [subprocess.Popen([*dask, "scheduler", *place, "--host", "127.0.0.1", "--port", "0"], **quiet)]
    started += [subprocess.Popen([*dask, "worker", *place, "--nthreads", "1"], **quiet) for _ in range(2)]
    try:
        with dask_executor(file, workers=2) as executor:
            # these workers may have no children: foreign code is drawn in them
            step = mechanisms.callable_step(foreign.noisy_sum, workers=2)
            assert record(step, ROWS, trials=600, executor=executor) == record(step, ROWS, trials=600)
    finally:
        for process in started[::-1]:
            process.terminate()
            process.wait(timeout=30)
