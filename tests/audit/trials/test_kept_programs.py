"""Programs kept on disk: found by all that decides them, and never by less."""

import dataclasses
import hashlib
import json

import jax
import numpy as np
import pytest

import distinguishers
import mechanisms
from audit.trials import kept_programs, programs, traced
from audit.trials.kept_programs import KeptProgram, programs_kept_in
from audit.trials.keys import trial_number, trial_numbers
from mechanisms import sampling
from mechanisms.randomness.noise import SHORT
from mechanisms.simulators.training import CollapsedEpochs
from mechanisms.structure import NoSignatureError, signature, structured

PAIR = mechanisms.worst_case_pair(records=4, dimension=5, clip=0.1)
STEP = mechanisms.one_round(normalise_by="expected_batch", rate=0.5, clip=0.1, noise_multiplier=1.0)
EDGES = np.linspace(-1, 1, 9, dtype=np.float32)[None]


@pytest.fixture
def shelf(tmp_path):
    with programs_kept_in(tmp_path):
        yield tmp_path


def counts(made, step=STEP):
    """The cells of one audit's scores, by programs that this process has not seen."""
    score = distinguishers.likelihood_ratio(step, PAIR)
    program = traced.compile_program(step, PAIR.without, score, side="without", chunk=64)
    own = dataclasses.replace(program, programs=made)
    return own.source(jax.random.key(3)).cells(0, 100, EDGES)


def test_a_kept_program_counts_the_same_and_is_not_traced(shelf, monkeypatch):
    first = counts(programs._make_programs())
    files = sorted(shelf.glob("*.program"))
    assert files
    again = programs._make_programs()
    monkeypatch.setattr(again.count_chunks, "jitted", None)
    np.testing.assert_array_equal(counts(again), first)
    assert sorted(shelf.glob("*.program")) == files
    with programs_kept_in(None):
        np.testing.assert_array_equal(counts(programs._make_programs()), first)


@pytest.mark.long
def test_other_numbers_share_a_program_and_other_structure_does_not(shelf):
    made = programs._make_programs()
    counts(made)
    before = len(made.count_chunks._found)
    counts(made, dataclasses.replace(STEP, rate=0.25))
    assert len(made.count_chunks._found) == before
    counts(made, dataclasses.replace(STEP, normalise_by="realised_batch"))
    assert len(made.count_chunks._found) == before + 1


def double(x):
    """A program of one line."""
    return x + x


@pytest.mark.parametrize("damage", ["one bit", "cut", "another's"])
def test_a_file_that_is_not_whole_is_compiled_again(shelf, damage):
    KeptProgram(double)(np.float32(2))
    (file,) = shelf.glob("*.program")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] if damage == "cut" else whole[:-9] + b"X" + whole[-8:])
    if damage == "another's":
        file.write_bytes(whole.replace(b"double", b"triple"))
    assert KeptProgram(double)(np.float32(3)) == 6
    stated, _, rest = file.read_bytes().partition(b"\n")
    assert stated == hashlib.sha256(rest).hexdigest().encode()


def test_what_decides_a_program_is_in_its_name(shelf, monkeypatch):
    made = KeptProgram(double)
    made(np.float32(1))
    made(np.int32(1))
    made(np.zeros(2, np.float32))
    with jax.default_matmul_precision("float32"):
        made(np.float32(1))
    monkeypatch.setattr(kept_programs, "_process", lambda: ("other code",))
    made(np.float32(1))
    assert len(list(shelf.glob("*.program"))) == 5


def test_a_program_of_another_processor_is_not_run(shelf, monkeypatch):
    KeptProgram(double)(np.float32(1))
    monkeypatch.setattr(kept_programs, "_instructions", lambda: "another")
    monkeypatch.setattr(kept_programs, "_process", kept_programs._process.__wrapped__)
    KeptProgram(double)(np.float32(1))
    assert len(list(shelf.glob("*.program"))) == 2


def test_a_program_that_jax_has_cached_is_kept_whole(shelf):
    # tests have JAX keep every program
    assert jax.config.jax_compilation_cache_dir
    for _ in range(2):
        KeptProgram(double)(np.ones(4, np.float32))
        (file,) = shelf.glob("*.program")
        again = KeptProgram(double)
        again.jitted = None
        np.testing.assert_array_equal(again(np.full(4, 3, np.float32)), np.full(4, 6))
        file.unlink()


def test_a_program_that_does_not_run_here_is_compiled_as_usual(shelf, monkeypatch):
    def broken(*arguments):
        raise jax.errors.JaxRuntimeError("NOT_FOUND: Function not found")

    made = KeptProgram(double)
    monkeypatch.setattr(made, "_program", lambda *_: broken)
    assert made(np.float32(2)) == 4
    assert made(np.float32(5)) == 10


def test_shapes_are_kept_too(shelf, monkeypatch):
    assert KeptProgram(double).eval_shape(np.zeros(3, np.float32)).shape == (3,)
    again = KeptProgram(double)
    monkeypatch.setattr(again, "jitted", None)
    assert again.eval_shape(np.zeros(3, np.float32)).shape == (3,)


def told_to_xla(monkeypatch):
    """The options of every program that is compiled from here on."""
    told = []
    compile_it = jax.stages.Lowered.compile

    def compile_and_tell(lowered, compiler_options=None):
        told.append(compiler_options)
        return compile_it(lowered, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_and_tell)
    return told


def compiled_by(monkeypatch, dimension):
    """What XLA is told when the outputs of a step of this dimension are drawn."""
    told = told_to_xla(monkeypatch)
    pair = mechanisms.worst_case_pair(records=1, dimension=dimension, clip=0.1)
    release = programs.release_of(STEP, pair.without)
    programs._make_programs().draw_chunk(release, jax.random.key(0), trial_number(0), size=2)
    return told


on_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="options of the compiler for CPUs")


@pytest.fixture
def quick():
    """The options that this XLA is told; newer ones (of JAX 0.11) know no such way."""
    options = kept_programs._quick("cpu")
    if options is None:
        pytest.skip("this XLA knows no quick way")
    return options


@on_cpu
def test_what_draws_short_vectors_is_compiled_quickly(shelf, monkeypatch, quick):
    assert compiled_by(monkeypatch, SHORT) == [quick]
    assert compiled_by(monkeypatch, SHORT + 1) == [None]


@on_cpu
def test_so_it_is_where_nothing_is_written_down(monkeypatch, quick):
    assert compiled_by(monkeypatch, SHORT) == [quick]
    assert compiled_by(monkeypatch, SHORT + 1) == [None]


@on_cpu
@pytest.mark.parametrize(("dimension", "quickly"), [(SHORT, True), (SHORT + 1, False)])
def test_outputs_of_foreign_code_are_scored_by_a_program_compiled_quickly_if_they_are_short(
    monkeypatch, quick, dimension, quickly
):
    told = told_to_xla(monkeypatch)
    score = distinguishers.projection(mechanisms.worst_case_pair(records=1, dimension=dimension, clip=0.1))
    outputs = np.ones((3, dimension), np.float32)
    programs._make_programs().score_outputs(score, jax.random.key(0), trial_numbers([0, 1, 2]), outputs)
    assert told == [quick if quickly else None]


def test_a_program_that_is_not_to_be_compiled_is_not():
    with jax.disable_jit():
        made = KeptProgram(double)
        assert made(np.float32(2)) == 4
    assert not made._found


@on_cpu
def test_an_xla_that_knows_no_quick_way_compiles_as_usual(shelf, monkeypatch):
    unknown = {"xla_cpu_option_of_another_release": False}
    monkeypatch.setitem(kept_programs.QUICK_TO_COMPILE, "cpu", unknown)
    kept_programs._quick.cache_clear()
    try:
        # asked once, of a program of nothing
        assert compiled_by(monkeypatch, 5) == [unknown, None]
        assert compiled_by(monkeypatch, 6) == [None]
    finally:
        kept_programs._quick.cache_clear()


@on_cpu
def test_a_score_compiled_quickly_differs_by_rounding_alone(shelf, quick):
    score = distinguishers.likelihood_ratio(STEP, PAIR)
    program = traced.compile_program(STEP, PAIR.without, score, side="without", chunk=64)
    arguments = (program.release, program.scoring, jax.random.key(3), trial_number(0))
    lowered = program.programs.score_chunk.jitted.lower(*arguments, size=64)
    # said both ways: these tests tell XLA to be quick
    options = quick | {"xla_cpu_parallel_codegen_split_count": 1}
    usual, found = (
        lowered.compile(compiler_options=each)(*arguments) for each in ({"xla_cpu_use_fusion_emitters": True}, options)
    )
    np.testing.assert_allclose(found, usual, rtol=0, atol=4 * np.spacing(np.abs(usual).max()))


@structured(structure=("code",))
@dataclasses.dataclass(frozen=True)
class Theirs:
    """A user's own structured part: nothing tells when its code changes."""

    code: str


@dataclasses.dataclass(frozen=True)
class TheirSampler:
    """A user's own sampler, called as ours is."""

    batch_size: int


def epochs(sampler):
    return CollapsedEpochs(
        shared=None, own=1.0, deviation=0.5, rest=None, sampler=sampler, records=9, epochs=1, group=1, final=False
    )


def test_samplers_are_told_apart_by_their_class_and_their_fields():
    kinds = sampling.shuffle(batch_size=1), sampling.shuffle(batch_size=2), sampling.deterministic(batch_size=1)
    texts = [json.dumps(signature(epochs(sampler))) for sampler in kinds]
    assert len(set(texts)) == 3
    assert json.dumps(signature(epochs(sampling.shuffle(batch_size=1)))) == texts[0]
    with pytest.raises(NoSignatureError):
        signature(epochs(TheirSampler(1)))


def test_parts_of_others_have_no_signature(shelf):
    with pytest.raises(NoSignatureError):
        signature(Theirs("x"))
    made = KeptProgram(lambda part, x: x)
    made(Theirs("x"), np.float32(1))
    assert not list(shelf.glob("*.program"))


def test_nothing_is_kept_where_nobody_asks(tmp_path):
    with programs_kept_in(tmp_path):
        pass
    made = KeptProgram(double)
    assert made(np.float32(2)) == 4
    assert not list(tmp_path.iterdir())
