import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checks import assert_has_law
from scipy import stats

from mechanisms.adapters.batch import trial_seeds
from mechanisms.adapters.for_command import CommandError, command_step

EXAMPLES = Path(__file__).parents[2] / "examples" / "command"
ROWS = np.array([[3.0, 4.0, 0.0], [0.0, 0.5, 0.0]], np.float32)
SEEDS = trial_seeds(np.array([5, 6], np.uint32), 0, 2000)


def python(code, **more):
    return command_step(command=(sys.executable, "-c", code), **more).prepare(ROWS)


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    found = {"python": (sys.executable, str(EXAMPLES / "step.py"), "1", "2")}
    compiler = shutil.which("cc")
    if compiler:
        program = tmp_path_factory.mktemp("c") / "step"
        subprocess.run([compiler, "-O2", "-o", program, EXAMPLES / "step.c", "-lm"], check=True)
        found["c"] = (str(program), "1", "2")
    return found


@pytest.mark.parametrize("language", ["python", "c"])
def test_the_examples_are_gaussian_mechanisms(language, commands):
    if language not in commands:
        pytest.skip("no C compiler")
    found = command_step(command=commands[language]).prepare(ROWS)(SEEDS)
    assert found.dtype == np.float32
    expected = np.array([0.6, 0.8 + 0.5, 0.0])
    for coordinate in range(3):
        assert_has_law(found[:, coordinate], stats.norm(expected[coordinate], 2.0).cdf)
    with pytest.raises(AssertionError, match="Kolmogorov"):
        assert_has_law(found[:, 1], stats.norm(0.8, 2.0).cdf)


@pytest.mark.parametrize("language", ["python", "c"])
def test_a_trial_depends_on_its_seed_alone(language, commands):
    if language not in commands:
        pytest.skip("no C compiler")
    step = command_step(command=commands[language])
    np.testing.assert_array_equal(step.prepare(ROWS)(SEEDS[7:9]), step.prepare(ROWS)(SEEDS[:20])[7:9])


def test_a_program_that_stops_shows_what_it_said():
    draw = python("import sys; sys.stdin.buffer.read(36); sys.exit('no such layer')")
    with pytest.raises(CommandError, match=r"exit code 1 .*no such layer"):
        draw(SEEDS[:1])


def test_a_program_that_is_late_is_an_error():
    draw = python("import time; time.sleep(30)", timeout=0.3)
    with pytest.raises(CommandError, match=r"within 0.3 s \(0 of 12 bytes came\)"):
        draw(SEEDS[:1])


def test_a_program_that_says_too_much_is_an_error():
    draw = python(
        "import sys; sys.stdin.buffer.read(56); sys.stdout.buffer.write(b'0' * 13); sys.stdout.flush(); input()"
    )
    with pytest.raises(CommandError, match="13 bytes where 12 were asked for"):
        draw(SEEDS[:1])


def test_a_program_that_is_not_there_is_an_error():
    with pytest.raises(CommandError, match="cannot start 'no-such-program'"):
        command_step(command=("no-such-program",)).prepare(ROWS)


def test_a_command_is_a_sequence_of_words():
    with pytest.raises(ValueError, match="command must be a sequence of words"):
        command_step(command="step 1 2")  # type: ignore[arg-type]
