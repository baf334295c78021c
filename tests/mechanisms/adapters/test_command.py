import ast
import importlib.util
import shutil
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from checks import assert_has_law
from scipy import stats

from mechanisms.adapters import program
from mechanisms.adapters.for_command import command_step
from mechanisms.adapters.program import CommandError
from mechanisms.adapters.trial_seeds import trial_seeds

EXAMPLES = Path(__file__).parents[3] / "examples" / "command"
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


@pytest.mark.long
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
    with pytest.raises(CommandError, match=r"within 0.3 s \(0 of 12 bytes came; 1 output of 3 float32 numbers"):
        draw(SEEDS[:1])


ANSWERS = """
import sys, time, struct
read, out = sys.stdin.buffer.read, sys.stdout.buffer
read(36)
while header := read(12):
    trials = struct.unpack('<4sII', header)[1]
    seeds = struct.unpack(f'<{trials}Q', read(8 * trials))
    for seed in seeds:
        row = struct.pack('<3f', seed %% 7, seed %% 11, seed %% 13)
        %s
        out.flush()
"""


@pytest.mark.parametrize("trials", [1, 5])
def test_rows_that_are_too_short_are_told_at_once(trials, monkeypatch):
    monkeypatch.setattr(program, "PAUSE", 0.2)
    draw = python(ANSWERS % "out.write(row[:8])", timeout=30.0)
    before = time.monotonic()
    with pytest.raises(CommandError, match="answers 2 numbers where 3 are expected: set outputs=2"):
        draw(SEEDS[:trials])
    assert time.monotonic() - before < 15


def test_a_program_that_pauses_within_its_first_answer_is_waited_for(monkeypatch):
    monkeypatch.setattr(program, "PAUSE", 0.02)
    draw = python(ANSWERS % "out.write(row[:4]); out.flush(); time.sleep(.1); out.write(row[4:])", timeout=30.0)
    expected = np.array([[seed % 7, seed % 11, seed % 13] for seed in SEEDS[:3].tolist()], np.float32)
    np.testing.assert_array_equal(draw(SEEDS[:3]), expected)
    np.testing.assert_array_equal(draw(SEEDS[:2]), expected[:2])


def test_a_program_that_says_too_much_is_an_error():
    draw = python(
        "import sys; sys.stdin.buffer.read(56); sys.stdout.buffer.write(b'0' * 13); sys.stdout.flush(); input()"
    )
    with pytest.raises(
        CommandError, match="13 bytes where 12 were asked for; 1 output of 3 float32 numbers, which outputs= sets"
    ):
        draw(SEEDS[:1])


def test_a_program_whose_rows_are_longer_than_stated_is_told_what_to_set():
    draw = python(
        "import sys; sys.stdin.buffer.read(56); sys.stdout.buffer.write(bytes(20)); sys.stdout.flush(); input()"
    )
    with pytest.raises(CommandError, match=r"which outputs= sets \(if each output has 5 numbers, set outputs=5\)\."):
        draw(SEEDS[:1])


def test_records_that_are_single_numbers_are_told_how_to_become_a_column():
    with pytest.raises(ValueError, match=r"got \(3,\); of one number per record write rows\[:, None\]\."):
        command_step(command=("true",)).prepare(np.ones(3, np.float32))


def test_a_program_that_is_not_there_is_an_error():
    with pytest.raises(CommandError, match="cannot start 'no-such-program'"):
        command_step(command=("no-such-program",)).prepare(ROWS)


def test_a_command_is_a_sequence_of_words():
    with pytest.raises(ValueError, match="command must be a sequence of words"):
        command_step(command="step 1 2")  # type: ignore[arg-type]


FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1], "w").write(f"{child.pid} {os.getpgid(0)} {os.getpid()}")
sys.stdin.buffer.read(36)
time.sleep(600)
"""


def alive(pid):
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_a_program_that_is_late_is_ended_with_all_that_it_started(tmp_path):
    draw = command_step(command=(sys.executable, "-c", FAMILY, str(tmp_path / "pids")), timeout=8.0).prepare(ROWS)
    with pytest.raises(CommandError, match="did not answer within 8 s"):
        draw(SEEDS[:1])
    child, group, program = map(int, (tmp_path / "pids").read_text().split())
    assert group == program
    for _ in range(100):
        if not alive(child) and not alive(program):
            return
        time.sleep(0.05)
    pytest.fail("the program or its child is still running")


def test_much_on_standard_error_costs_no_memory_and_blocks_nobody():
    loud = "import sys; [sys.stderr.write('x' * 10**6) for _ in range(100)]; sys.stdin.buffer.read(36); sys.exit('end')"
    tracemalloc.start()
    with pytest.raises(CommandError, match=r"xxx.*end") as raised:
        python(loud)(SEEDS[:1])
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()
    assert len(str(raised.value)) < 10_000


def test_a_program_is_given_the_environment_that_is_listed(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.setenv("WANTED", "yes")
    code = "import os, sys; sys.stdin.buffer.read(36); sys.exit(str(sorted(os.environ.items())))"
    with pytest.raises(CommandError) as raised:
        python(code, environment=("PATH", "WANTED", "THREADS=1"))(SEEDS[:1])
    assert "s3cret" not in str(raised.value)
    assert "('THREADS', '1'), ('WANTED', 'yes')" in str(raised.value)
    with pytest.raises(CommandError) as raised:
        python(code)(SEEDS[:1])
    assert "SECRET_TOKEN" not in str(raised.value)


LIBRARY = """
import os
import numpy as np
print("a library that greets")
def release(seed, rows):
    print("and chats")
    os.write(1, b"in C too")
    return rows.sum(0) + np.random.default_rng(seed).standard_normal(rows.shape[1])
"""


def test_serve_answers_for_a_library_that_prints(tmp_path):
    (tmp_path / "chatty.py").write_text(LIBRARY)
    command = (sys.executable, str(EXAMPLES / "serve.py"), "chatty:release")
    draw = command_step(command=command, folder=str(tmp_path)).prepare(ROWS)
    expected = ROWS.sum(0) + np.random.default_rng(int(SEEDS[1])).standard_normal(3)
    np.testing.assert_allclose(draw(SEEDS[:2])[1], expected, rtol=1e-6)


def test_serve_is_python_3_6():
    ast.parse((EXAMPLES / "serve.py").read_text(), feature_version=(3, 6))


def test_what_was_printed_is_recognised():
    code = "import sys; sys.stdin.buffer.read(48); print('Epoch 1 of 3 and so on and so on'); sys.stdout.flush()"
    with pytest.raises(CommandError, match="begins with the text 'Epoch 1 of 3"):
        python(code + "; import time; time.sleep(5)")(SEEDS[:1])


@pytest.mark.long
def test_a_slow_start_is_waited_for_apart_from_the_answers(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1)\ndef release(seed, rows):\n    return rows.sum(0)\n")
    command = (sys.executable, str(EXAMPLES / "serve.py"), "slow:release")
    late = command_step(command=command, folder=str(tmp_path), timeout=0.3)
    with pytest.raises(CommandError, match=r"did not answer within 0.3 s"):
        late.prepare(ROWS)(SEEDS[:1])
    ready = command_step(command=command, folder=str(tmp_path), timeout=0.9, start_timeout=60.0)
    np.testing.assert_allclose(ready.prepare(ROWS)(SEEDS[:1])[0], ROWS.sum(0), rtol=1e-6)
    assert (ready.parameters["start_timeout"], "start_timeout" in late.parameters) == (60.0, False)


def test_a_program_that_greets_otherwise_is_refused():
    code = "import sys; sys.stdin.buffer.read(12); sys.stdout.buffer.write(b'Load'); sys.stdout.flush(); input()"
    with pytest.raises(CommandError, match=r"answered b'Load' to the greeting .*leave start_timeout= out"):
        command_step(command=(sys.executable, "-c", code), start_timeout=30.0).prepare(ROWS)


def test_what_nobody_asked_for_is_an_error():
    code = """
import sys, time
sys.stdin.buffer.read(56); sys.stdout.buffer.write(b"0" * 12); sys.stdout.flush()
print("Epoch 2 of 3", flush=True); print("printed", file=sys.stderr, flush=True)
time.sleep(30)
"""
    draw = python(code)

    def ask_until_it_fails():
        draw(SEEDS[:1])
        while True:
            time.sleep(0.05)
            draw(SEEDS[:0])

    # what is printed may come with the answer, which is then too long
    with pytest.raises(CommandError, match=r"asked for.* \(it begins with the text '0*Epoch 2 of 3'"):
        ask_until_it_fails()


def test_serve_names_a_number_that_float32_does_not_have():
    spec = importlib.util.spec_from_file_location("serve", EXAMPLES / "serve.py")
    served = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(served)
    np.testing.assert_array_equal(
        served.single([[1.5, np.inf], [np.nan, -2]]), np.array([1.5, np.inf, np.nan, -2], "<f4")
    )
    with pytest.raises(SystemExit, match=r"1e\+300 is beyond 3.4e38, the largest float32: scale the release"):
        served.single(np.array([0.0, 1e300]))
