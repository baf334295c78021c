"""Several devices: the same counts, whichever device draws a trial."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import several_devices

from audit.trials.devices import shares

HERE = Path(__file__).resolve().parent


def on_devices(count: int, what: str) -> list:
    paths = [str(HERE.parents[2]), str(HERE.parents[1]), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={count}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    script = str(HERE.parent / "several_devices.py")
    done = subprocess.run([sys.executable, script, what], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000, 12_345])
@pytest.mark.parametrize("devices", [1, 3, 4])
def test_every_trial_has_one_device(count, devices):
    own = shares(count, devices=devices, size=64)
    assert (len(own), sum(own)) == (devices, count)
    assert max(own) - min(own) <= 2 * 64


@pytest.mark.long
def test_four_devices_count_what_one_counts():
    assert on_devices(4, "counted") == [4, several_devices.counted()]


@pytest.mark.long
def test_whole_records_are_the_same_on_three_devices():
    (three, found), (one, alone) = on_devices(3, "everything"), on_devices(1, "everything")
    assert (three, one) == (3, 1)
    # XLA rounds the outputs that a learner is given differently where it has several devices; edges follow them
    edges = [[grid.pop("edges") for grid in records[1]["grids"]] for records in (found, alone)]
    assert [*itertools.chain(*edges[0])] == pytest.approx([*itertools.chain(*edges[1])], abs=1e-5)
    assert found == alone
