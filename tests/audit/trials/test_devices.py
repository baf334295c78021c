"""Several devices: the same counts, whichever device draws a trial."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import several_devices

from audit.trials.devices import trials_per_device

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
    own = trials_per_device(count, devices=devices, size=64)
    assert (len(own), sum(own)) == (devices, count)
    assert max(own) - min(own) <= 2 * 64


@pytest.mark.long
def test_four_devices_count_what_one_counts():
    assert on_devices(4, "counted") == [4, several_devices.counted()]


@pytest.mark.long
def test_whole_records_are_the_same_on_three_devices():
    """What is learnt differs by rounding: XLA splits a learner's products over the threads that a device has.

    (One device on one core and one on two differ, too.) The rest differs in its last digits at most: XLA compiles
    a program for several devices in another way.
    """
    (three, found), (one, alone) = on_devices(3, "everything"), on_devices(1, "everything")
    assert (three, one) == (3, 1)
    learnt, also_learnt = found.pop(1), alone.pop(1)
    assert differences(found, alone, rounding=1e-7) == []
    assert differences(learnt, also_learnt, rounding=1e-3) == []


def differences(one, other, path="", *, rounding):
    """Where two records differ by more than rounding: a score that lies on an edge may change its cell."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [each for key in one for each in differences(one[key], other[key], f"{path}.{key}", rounding=rounding)]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [each for place, pair in pairs for each in differences(*pair, f"{path}[{place}]", rounding=rounding)]
    if isinstance(one, str) and isinstance(other, str):
        return [] if re.sub(r"[\d.e-]+", "#", one) == re.sub(r"[\d.e-]+", "#", other) else [(path, one, other)]
    if type(one) is int and type(other) is int:
        return [] if abs(one - other) <= 2 else [(path, one, other)]
    if isinstance(one, float) and isinstance(other, float):
        return [] if one == pytest.approx(other, rel=rounding, abs=rounding / 100) else [(path, one, other)]
    return [] if one == other else [(path, one, other)]


def test_differences_beyond_rounding_are_told():
    one = {"counts": [7, 100], "edges": [0.5], "says": "at least 0.41 in 5 trials", "of": None}
    near = {"counts": [8, 99], "edges": [0.5000001], "says": "at least 0.42 in 5 trials", "of": None}
    assert differences(one, near, rounding=1e-3) == []
    for key, far in (("counts", [7, 103]), ("edges", [0.51]), ("says", "at most 0.41 in 5 trials"), ("of", 0.0)):
        assert len(differences(one, one | {key: far}, rounding=1e-3)) == 1
