"""verify --rerun: what a suite can name is drawn again, and no program runs at the word of a file of records."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import hypergeom
from toys import First

import distinguishers
import guarantees
import mechanisms
from audit.cli import main
from audit.policies.anytime import Anytime
from audit.policies.fixed import Fixed
from audit.procedure import run_audit
from audit.record.record import Part
from audit.record.stored import load_records, save_records
from audit.suites.build import build, catalogue
from audit.suites.read import parse_suite
from audit.suites.run import run_suite
from audit.trials.keys import key_from_seed
from audit.verify import redraw
from audit.verify.parts import recorded_parts
from audit.verify.procedure import TRIALS, verify
from mechanisms.catalogue import COLLAPSED

RECORDS = Path(__file__).parents[2] / "data" / "records.json"
OTHER_OPACUS = Part(name="opacus_step", parameters={"version": "1.4.0"})
HEAD = """
trials = 200
[defaults]
claim = { kind = "gaussian", mu = 9.0 }
policy = { kind = "fixed", thresholds = [0.0], method = "rectangle" }
diagnose = false
"""
PAIR = 'neighbours = { kind = "worst_case_pair", records = 3, dimension = 4, clip = 1.0 }'
ZERO = '{ kind = "worst_case_pair", records = 5, dimension = 3, clip = 1.0, relation = "zero_out" }'
ROUND = 'normalise_by = "expected_batch", rate = 0.5, clip = 1.0, noise_multiplier = 1.0'
SHUFFLE = 'sampler = { kind = "shuffle", batch_size = 2 }, clip = 1.0, noise_multiplier = 1.0'
FAST = f"""
mechanism = {{ kind = "many_rounds", simulator = "collapsed", releases = "final", {SHUFFLE} }}
neighbours = {ZERO.replace("dimension = 3", "dimension = 1")}
distinguisher = "projection" """
SLOW = {
    "collapsed_rounds": f"""
mechanism = {{ kind = "many_rounds", simulator = "collapsed", {SHUFFLE} }}
neighbours = {ZERO}
distinguisher = "likelihood_ratio" """,
    "supposes another": f"""
mechanism = {{ kind = "one_round", {ROUND} }}
distinguisher = {{ kind = "likelihood_ratio", \
neighbours = {{ kind = "zero_pair", records = 3, dimension = 4, clip = 1.0 }}, \
model = {{ kind = "one_round", {ROUND.replace("expected", "realised")} }} }}""",
    "one_round": f'mechanism = {{ kind = "one_round", {ROUND} }}\ndistinguisher = "normality_test"',
    "a replay first": f"""
mechanism = {{ kind = "one_round", {ROUND} }}
distinguisher = {{ kind = "default_battery", replay = true }}""",
    "collapsed_round": f'mechanism = {{ kind = "collapsed_round", {ROUND} }}\ndistinguisher = "likelihood_ratio"',
    "many_rounds": f"""
mechanism = {{ kind = "many_rounds", {SHUFFLE} }}
neighbours = {ZERO}
distinguisher = "largest_round" """,
    "gaussian_mechanism": """
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
neighbours = { kind = "scalar_pair", sensitivity = 1.0 }
distinguisher = "likelihood_ratio" """,
    "optax_step": """
mechanism = { kind = "optax_step", clip = 1.0, noise_multiplier = 1.0 }
distinguisher = "projection" """,
    "jax_privacy_step": """
mechanism = { kind = "jax_privacy_step", rate = 0.5, clip = 1.0, noise_multiplier = 1.0 }
distinguisher = "ratio" """,
    "opacus_step": """
mechanism = { kind = "opacus_step", batch_size = 2, clip = 1.0, noise_multiplier = 1.0 }
distinguisher = "contrast" """,
    "flax_step": """
mechanism = { kind = "flax_step", normalise_by = "none", rate = 0.5, clip = 1.0, noise_multiplier = 1.0 }
neighbours = { kind = "image_pair", records = 3 }
distinguisher = "battery" """,
    "the default battery": f'mechanism = {{ kind = "one_round", {ROUND} }}',
    "fit": f'mechanism = {{ kind = "one_round", {ROUND} }}\ndistinguisher = "fit"',
    "battery": f'mechanism = {{ kind = "one_round", {ROUND} }}\ndistinguisher = "battery"',
    "norm": f'mechanism = {{ kind = "one_round", {ROUND} }}\ndistinguisher = {{ kind = "norm", sign = -1 }}',
    "max_coordinate": f"""
mechanism = {{ kind = "one_round", {ROUND} }}
distinguisher = {{ kind = "max_coordinate", coordinates = "towards_record" }}""",
    "orthogonal": f"""
mechanism = {{ kind = "one_round", {ROUND} }}
neighbours = {{ kind = "orthogonal_pair", records = 3, dimension = 6, clip = 1.0 }}
distinguisher = "norm" """,
}
OWN_CODE = ("callable_step", "command_step", "jax_training", "torch_training")
"""Mechanisms that run code of the user's own: the suite names it, the record cannot."""


def text_of(words):
    pair = "" if "\nneighbours =" in words else PAIR
    return f'{HEAD}\n[[audit]]\nname = "one"\n{words}\n{pair}\n'


def suite_of(words):
    return parse_suite(text_of(words), "suite.toml")


def audited(words):
    """As run_suite does it, without its digests of all code."""
    made = build(suite_of(words).audits[0])
    return run_audit(
        made.mechanism,
        made.neighbours,
        made.distinguisher,
        claim=made.claim,
        trials=200,
        risk=0.05,
        key=key_from_seed(1),
        policy=made.policy,
        name="one",
        diagnose=False,
    )


def redrawn(record, **more):
    return next(check for check in verify((record,), rerun=1.0, **more).checks if check.what == TRIALS)


def again(words, folder):
    """A record that went through a file, and the check of its trials."""
    save_records((audited(words),), folder / "records.json")
    (record,) = load_records(folder / "records.json")
    return record, redrawn(record)


@pytest.fixture(scope="module")
def gaussian():
    return audited(SLOW["gaussian_mechanism"])


def checked(record, share):
    return next(check for check in verify((record,), rerun=share).checks if check.what == TRIALS)


def moved(record, count):
    """So many trials without the record moved from the fullest cells to the last."""
    (grid,) = record.grids
    cells = list(grid.without)
    for _ in range(count):
        cells[max(range(len(cells)), key=cells.__getitem__)] -= 1
        cells[-1] += 1
    return dataclasses.replace(record, grids=(dataclasses.replace(grid, without=tuple(cells)),))


def test_a_right_record_is_drawn_again_in_part_and_in_full(gaussian):
    said = []
    part, full = verify((gaussian,), rerun=0.3, told=said.append), verify((gaussian,), rerun=1.0)
    (told,) = said
    assert told.startswith(
        f"{gaussian.name!r}: drawing {2 * round(0.3 * gaussian.trials_per_side):,} of {gaussian.trials:,} trials again"
    )
    assert {check.state for check in (*part.checks, *full.checks)} == {"right"}
    assert not part.all_drawn
    assert full.all_drawn
    (drawn,) = (check for check in part.checks if check.what == TRIALS)
    assert "30 of 100 trials per side" in drawn.says


def test_changed_counts_are_found_by_drawing_again(gaussian):
    assert checked(moved(gaussian, 1), 1.0).state == "wrong"
    assert checked(moved(gaussian, 60), 0.9).state == "wrong"
    point = dataclasses.replace(gaussian.points[0], threshold=gaussian.grids[0].edges[3])
    assert verify((dataclasses.replace(gaussian, points=(point,)),)).any("wrong")


@pytest.mark.few(1)
@pytest.mark.parametrize("steps", [2, None])
def test_changed_steps_are_found_by_drawing_again(gaussian, steps):
    assert gaussian.steps == 1
    for share in (0.1, 1.0):
        check = checked(dataclasses.replace(gaussian, steps=steps), share)
        assert check.state == "wrong"
        assert "steps" in check.says


def test_more_fit_trials_than_the_policy_draws_are_found_by_drawing_again(gaussian):
    check = checked(dataclasses.replace(gaussian, fit_trials=gaussian.fit_trials + 2), 1.0)
    assert check.state == "wrong"
    assert "fit_trials: 2 recorded, 0 drawn again" in check.says


def test_code_without_a_seed_is_not_called_wrong(gaussian):
    check = checked(dataclasses.replace(moved(gaussian, 1), repeatable=False), 1.0)
    assert check.state == "not checked"
    assert "cannot be drawn again" in check.says


def seeded(seed, dataset):
    """A step that draws from its seed."""
    return np.random.default_rng(seed).normal(float(np.sum(dataset)), 1.0, size=1)


def unseeded(seed, dataset):
    """A step that forgets its seed."""
    return np.random.default_rng().normal(float(np.sum(dataset)), 1.0, size=1)


TICKS = [0]


def by_the_clock(seed, dataset):
    """A step that takes its seed from a clock, which moves on after forty trials."""
    TICKS[0] += 1
    return np.random.default_rng(TICKS[0] // 40).normal(float(np.sum(dataset)), 1.0, size=1)


@pytest.mark.parametrize(("step", "known"), [(unseeded, False), (seeded, True), (by_the_clock, False)])
def test_an_audit_records_whether_its_step_is_repeatable(step, known):
    record = run_audit(
        mechanisms.callable_step(step),
        mechanisms.scalar_pair(sensitivity=1.0),
        First(),
        claim=guarantees.gaussian(mu=9.0),
        trials=40,
        risk=0.05,
        key=key_from_seed(1),
        policy=Fixed(thresholds=(0.0,), method="rectangle"),
        diagnose=False,
    )
    assert record.repeatable is known


@pytest.mark.long
def test_where_pytorch_is_installed_records_of_where_it_is_not_are_right(tmp_path, monkeypatch):
    """Beside a violation of NumPy code stood that no replay of PyTorch code followed it, or nothing."""
    (tmp_path / "stepping.py").write_text(CLOCK)
    monkeypatch.syspath_prepend(tmp_path)
    words = 'mechanism = { kind = "callable_step", function = "stepping:step" }\ndiagnose = true'
    suite = suite_of(f'{words}\nclaim = {{ kind = "gaussian", mu = 0.1 }}')
    (record,) = run_suite(suite)
    fewer = tuple(answer for answer in record.diagnoses if answer.code != "line:not_followed")
    assert redrawn(dataclasses.replace(record, diagnoses=fewer), suite=suite).state == "right"
    assert redrawn(dataclasses.replace(record, diagnoses=fewer[1:]), suite=suite).state == "wrong"


CLOCK = """
import numpy as np
NOW = 0
ANOTHER = 0
def step(seed, dataset):
    return np.random.default_rng([NOW, ANOTHER, 0 if NOW else seed]).normal(float(np.sum(dataset)), 1.0, size=1)
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(("changed", "state"), [("NOW", "not checked"), ("ANOTHER", "wrong")])
def test_code_whose_seed_is_the_clock_is_not_called_wrong(tmp_path, monkeypatch, changed, state):
    """Within a second it repeated its trials, and `verify --rerun` called its record wrong a minute later."""
    (tmp_path / "clocked.py").write_text(CLOCK)
    monkeypatch.syspath_prepend(tmp_path)
    import clocked

    suite = suite_of(
        'mechanism = { kind = "callable_step", function = "clocked:step" }\nclaim = { kind = "gaussian", mu = 1.0 }'
    )
    monkeypatch.setattr(clocked, "NOW", 1)
    (record,) = run_suite(suite)
    assert record.repeatable is True
    assert redrawn(record, suite=suite).state == "right"
    monkeypatch.setattr(clocked, changed, 2)
    later = lambda seconds: setattr(clocked, "NOW", clocked.NOW + (changed == "NOW"))  # noqa: E731
    monkeypatch.setattr("audit.verify.redraw.time.sleep", later)
    assert redrawn(record, suite=suite).state == state


@pytest.mark.long
def test_collapsed_rounds_are_drawn_again(tmp_path):
    record, check = again(FAST, tmp_path)
    assert check.state == "right", check.says
    moved = dataclasses.replace(record.grids[0], without=record.grids[0].without[::-1])
    assert redrawn(dataclasses.replace(record, grids=(moved,))).state == "wrong"
    ordered = dataclasses.replace(record.mechanism, name="command_step", parameters={"command": ["touch", "x"]})
    refused = redrawn(dataclasses.replace(record, mechanism=ordered))
    assert refused.state == "not checked"
    assert "give the suite that names it with --suite" in refused.says


@pytest.mark.long
@pytest.mark.parametrize("name", SLOW)
def test_everything_that_a_suite_names_is_drawn_again(name, tmp_path):
    for library in {"jax_privacy_step": ["jax_privacy"], "opacus_step": ["torch", "opacus"]}.get(name, []):
        pytest.importorskip(library)
    _, check = again(SLOW[name], tmp_path)
    assert check.state == "right", check.says


def test_no_mechanism_is_forgotten():
    tried = {name for name in SLOW if name in catalogue()["mechanism"]}
    assert tried | set(OWN_CODE) == set(catalogue()["mechanism"])
    assert set(COLLAPSED) <= set(SLOW)


COMMAND = f"""
mechanism = {{ kind = "command_step", command = ["{sys.executable}", "examples/command/step.py", "1.0", "1.0"] }}
neighbours = {{ kind = "scalar_pair", sensitivity = 1.0 }}
distinguisher = "projection" """


@pytest.mark.long
def test_a_program_runs_where_a_suite_names_it(tmp_path, capsys):
    suite, record = suite_of(COMMAND), audited(COMMAND)
    assert redrawn(record, suite=suite).state == "right"
    assert redrawn(record).state == "not checked"
    assert "the suite has no audit 'other'" in redrawn(dataclasses.replace(record, name="other"), suite=suite).says
    save_records((record,), tmp_path / "records.json")
    (tmp_path / "suite.toml").write_text(text_of(COMMAND))
    given = ["verify", str(tmp_path / "records.json"), "--rerun", "0.5", "--suite", str(tmp_path / "suite.toml")]
    assert main([*given, "--json"]) == 0
    states = {check["what"]: check["state"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert states["trials drawn again"] == "right"


LEARNS = """
import dataclasses
import numpy as np
from scipy.stats import hypergeom
from toys import First

NOISE = 1.0


def step(seed, dataset):
    return np.random.default_rng(seed).normal(float(np.sum(dataset)), NOISE, size=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Taught(First):
    name: str = "taught"
    learnt: float = 0.0
    taken: int = 0

    @property
    def parameters(self):
        return {"members": [f"wider than {self.learnt:g}"], "learnt_from": self.taken}


class Learns:
    name, parameters = "learns", {}

    def fit_trials(self, trials):
        return trials // 2

    def learn(self, key, without, with_record, layout):
        return Taught(learnt=round(float(np.std(without)), 1), taken=2 * len(without))


def learner():
    return Learns()
"""


def test_code_whose_fit_trials_teach_other_scores_is_called_wrong(tmp_path, monkeypatch):
    """Halved noise was 'not checked': the learned scores had other names, and nothing was compared."""
    (tmp_path / "learns_again.py").write_text(LEARNS)
    monkeypatch.syspath_prepend(str(tmp_path))
    suite = suite_of("""
mechanism = { kind = "callable_step", function = "learns_again:step" }
neighbours = { kind = "scalar_pair", sensitivity = 1.0 }
distinguisher = { function = "learns_again:learner" }""")
    (record,) = run_suite(suite)
    assert redrawn(record, suite=suite).state == "right"
    monkeypatch.setattr("learns_again.NOISE", 0.5)
    other = redrawn(record, suite=suite)
    assert other.state == "wrong"
    assert "the code gives other outputs" in other.says
    assert "members[0]: 'wider than " in other.says
    score = dataclasses.replace(record.distinguisher, parameters={"members": [], "learnt_from": 2})
    cut_short = redrawn(dataclasses.replace(record, distinguisher=score), suite=suite)
    assert cut_short.state == "not checked"
    assert "the distinguisher as built is not the recorded one" in cut_short.says


LEAKS = """
import jax


def leaks(key, gradients):
    return gradients.sum(axis=0) + 0.1 * jax.random.normal(key, gradients.shape[1:])
"""


@pytest.mark.long
def test_a_line_in_a_record_is_found_again_from_any_folder_and_a_changed_one_is_not(tmp_path, monkeypatch):
    (tmp_path / "leaks_again.py").write_text(LEAKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    text = f"""
trials = 200
[[audit]]
name = "one"
mechanism = {{ function = "leaks_again:leaks" }}
distinguisher = "projection"
{PAIR}
claim = {{ kind = "gaussian", mu = 1.0 }}
policy = {{ kind = "fixed", thresholds = [0.0] }}
"""
    suite = parse_suite(text, "suite.toml")
    (record,) = run_suite(suite)
    assert record.diagnoses[0].lines == (("leaks_again.py", 6),)
    monkeypatch.chdir(Path(__file__).parent)
    assert redrawn(record, suite=suite).state == "right"
    moved = dataclasses.replace(record.diagnoses[0], lines=(("leaks_again.py", 5),))
    other = redrawn(dataclasses.replace(record, diagnoses=(moved, *record.diagnoses[1:])), suite=suite)
    assert other.state == "wrong"
    assert "diagnoses[0].lines[0][1]: 5 recorded, 6 drawn again" in other.says


@pytest.mark.long
def test_diagnoses_after_an_early_end_are_measured_again():
    """It said that a time budget may have cut them short, where a refutation had ended the trials."""
    pair, step = mechanisms.scalar_pair(), mechanisms.gaussian_mechanism(noise_multiplier=0.5)
    given = {"claim": guarantees.gaussian(mu=0.5), "trials": 400, "risk": 0.05, "key": key_from_seed(1)}
    score = distinguishers.likelihood_ratio(step, pair)
    record = run_audit(step, pair, score, **given, policy=Anytime())
    assert record.trials < record.trials_planned
    found = redrawn(record)
    assert found.state == "right"
    assert "not measured again" not in found.says
    first = dataclasses.replace(record.diagnoses[0], p_value=0.123)
    changed = dataclasses.replace(record, diagnoses=(first, *record.diagnoses[1:]))
    assert "diagnoses[0].p_value: 0.123 recorded" in redrawn(changed).says
    # one that found nothing before its last trial was ended by a time budget
    cut = dataclasses.replace(record, verdict="no_violation_found", violated_at=None)
    assert "a time budget may have cut them short" in redrawn(cut).says


@pytest.mark.parametrize("part", [Part(name="command_step", parameters={"command": ["./x"]}), OTHER_OPACUS])
def test_records_start_no_program_and_install_no_library(part):
    record = dataclasses.replace(load_records(RECORDS)[0], mechanism=part)
    with pytest.raises(ValueError, match=f"{part.name} runs a program; give the suite"):
        recorded_parts(record)


@pytest.mark.parametrize("part", [Part(name="command_step", parameters={"command": ["./x"]}), OTHER_OPACUS])
def test_a_distinguisher_that_supposes_a_program_starts_none(part):
    record = load_records(RECORDS)[0]
    supposed = {**record.distinguisher.parameters, "mechanism": {"kind": part.name, **part.parameters}}
    score = dataclasses.replace(record.distinguisher, name="likelihood_ratio", parameters=supposed)
    with pytest.raises(ValueError, match=f"{part.name} runs a program; give the suite"):
        recorded_parts(dataclasses.replace(record, distinguisher=score))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "change",
    [
        lambda r: dataclasses.replace(r, releases="final"),
        lambda r: dataclasses.replace(r, releases=""),
        lambda r: dataclasses.replace(r, mechanism=dataclasses.replace(r.mechanism, kind="opaque")),
        lambda r: dataclasses.replace(r, neighbours=dataclasses.replace(r.neighbours, kind="substitution")),
        lambda r: dataclasses.replace(
            r, mechanism=dataclasses.replace(r.mechanism, parameters={**r.mechanism.parameters, "clip": 3})
        ),
    ],
)
def test_what_is_said_of_the_parts_is_what_is_drawn_from(gaussian, change):
    found = verify((change(gaussian),), rerun=1.0)
    assert not found.all_drawn
    assert found.checks[-1].state == "wrong"
    assert "as built" in found.checks[-1].says


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("noise_multiplier = 1.0", "noise_multiplier = 2.0", "mechanism.parameters.noise_multiplier: 1 recorded, 2 in"),
        ("sensitivity = 1.0", "sensitivity = 2.0", "sensitivity: 1 recorded, 2 in the suite"),
        ("distinguisher =", 'expect = "violation"\ndistinguisher =', "'violation' in the suite"),
        ("distinguisher =", "delta = 1e-6\ndistinguisher =", "report_delta: 1e-05 recorded, 1e-06 in the suite"),
    ],
)
def test_a_record_of_another_audit_than_the_suites_is_wrong_with_and_without_drawing(
    gaussian, old, new, says, tmp_path
):
    """A changed command was 'not checked', and the exit code 0."""
    words = SLOW["gaussian_mechanism"]
    assert redrawn(gaussian, suite=suite_of(words)).state == "right"
    path, other = tmp_path / "records.json", tmp_path / "suite.toml"
    save_records((gaussian,), path)
    other.write_text(text_of(words.replace(old, new)))
    for more in ([], ["--rerun", "0.1"]):
        assert main(["verify", str(path), "--suite", str(other), "--quiet", *more]) == 1
    found = verify((gaussian,), suite=suite_of(words.replace(old, new))).checks
    assert [says in each.says for each in found if (each.what, each.state) == ("what was audited", "wrong")] == [True]


@pytest.mark.few(2)
def test_a_record_that_does_not_say_what_was_released_is_not_the_suites(gaussian):
    erased = dataclasses.replace(gaussian, releases="")
    found = verify((erased,), suite=suite_of(SLOW["gaussian_mechanism"])).checks
    wrong = [each.says for each in found if (each.what, each.state) == ("what was audited", "wrong")]
    assert len(wrong) == 1
    assert "releases" in wrong[0]


def test_a_suite_without_the_audit_leaves_it_unchecked(gaussian):
    other = dataclasses.replace(gaussian, name="other")
    (check,) = [each for each in verify((other,), suite=suite_of(SLOW["gaussian_mechanism"])).checks if each.says]
    assert (check.state, check.says) == ("not computed", "the suite has no audit 'other'")


def test_a_part_of_the_trials_is_told_as_one(gaussian, tmp_path, capsys):
    save_records((gaussian,), tmp_path / "records.json")
    assert main(["verify", str(tmp_path / "records.json"), "--rerun", "0.3"]) == 0
    said = capsys.readouterr().out
    assert "0 of them" not in said
    assert "primary values; of 1 audit a part of the trials was drawn again. Not checked: " in said
    assert main(["verify", str(tmp_path / "records.json"), "--rerun", "1"]) == 0
    said = capsys.readouterr().out
    assert " of them drawn again." in said
    assert "Not checked" not in said


@pytest.mark.parametrize(("errors", "total", "trials"), [(0, 50, 10), (7, 300, 90), (1500, 10_000, 1000), (50, 50, 5)])
def test_errors_among_the_trials_drawn_again_are_hypergeometric(errors, total, trials):
    for drawn in range(0, trials + 1, max(1, trials // 10)):
        tails = hypergeom.cdf(drawn, total, errors, trials), hypergeom.sf(drawn - 1, total, errors, trials)
        assert redraw._p_value(drawn, errors, total=total, trials=trials) == pytest.approx(2 * min(tails), abs=1e-12)
