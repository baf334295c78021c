"""From words to parts: what a distinguisher supposes, and libraries that are missing."""

import importlib.util

import pytest

import guarantees
from audit.suites.build import build, catalogue
from audit.suites.claim_names import claim_from_text
from audit.suites.parts import code_of
from audit.suites.read import parse_suite
from audit.suites.suite import SuiteError

SUITE = """
[[audit]]
name = "images"
mechanism = {{ kind = "one_round", normalise_by = "none" }}
neighbours = "worst_case_pair"
claim = "subsampled_gaussian"
distinguisher = {{ kind = "likelihood_ratio", {more} }}
parameters = {{ records = 4, dimension = 50, rate = 0.5, clip = 0.1, noise_multiplier = 10.0 }}
"""


def built(more):
    (spec,) = parse_suite(SUITE.format(more=more), "suite.toml").audits
    return build(spec)


@pytest.mark.parametrize(
    ("words", "claim"),
    [
        (
            'kind = "renyi", orders = [2.0, 4.0], epsilons = [0.1, 0.2]',
            guarantees.renyi(orders=[2.0, 4.0], epsilons=[0.1, 0.2]),
        ),
        (
            'kind = "claim_from_table", points = [[4.5, 1e-5], [1.0, 0.1]], unit = "step"',
            guarantees.claim_from_table([(4.5, 1e-5), (1.0, 0.1)], unit="step"),
        ),
    ],
)
def test_a_suite_states_claims_of_lists(words, claim):
    text = SUITE.format(more="neighbours = 'zero_pair'").replace('"subsampled_gaussian"', f"{{ {words} }}")
    (spec,) = parse_suite(text, "suite.toml").audits
    assert build(spec).claim.describe() == claim.describe()


@pytest.mark.parametrize("words", ['"zero_pair"', '{ kind = "zero_pair" }'])
def test_a_distinguisher_can_suppose_other_neighbours(words):
    found = built(f"neighbours = {words}")
    assert found.neighbours.name == "worst_case_pair"
    assert found.distinguisher.parameters["neighbours"]["kind"] == "zero_pair"
    # the audit's shared parameters reach them
    assert found.distinguisher.parameters["neighbours"]["dimension"] == 50


def test_its_own_words_win_over_the_shared_ones():
    model = '{ kind = "collapsed_round", normalise_by = "expected_batch" }'
    found = built(f'neighbours = {{ kind = "zero_pair", records = 9 }}, model = {model}')
    assert found.distinguisher.parameters["neighbours"]["records"] == 9
    assert found.distinguisher.parameters["mechanism"]["kind"] == "collapsed_round"
    assert found.mechanism.name == "one_round"


def test_without_words_it_supposes_what_is_audited():
    found = built('model = { kind = "one_round", normalise_by = "none" }')
    assert found.distinguisher.parameters["neighbours"]["kind"] == "worst_case_pair"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('neighbours = "zero_pear"', "unknown neighbours 'zero_pear'.*zero_pair"),
        ("neighbours = 3", "neighbours of a distinguisher must be a name or a table"),
        ('neighbours = { kind = "zero_pair", colour = 1 }', "unknown key 'colour'"),
        ("model = { rate = 0.5 }", "model of a distinguisher must be a name or a table"),
    ],
)
def test_wrong_words_are_refused(more, message):
    with pytest.raises(SuiteError, match=message):
        built(more)


def test_a_function_under_an_unknown_kind_is_told_how_to_write_it():
    suite = 'risk = 0.05\ntrials = 10\n[[audit]]\nname = "a"\nneighbours = "scalar_pair"\nclaim = "gaussian"\n'
    suite += 'mechanism = { kind = "mechanism", function = "steps:mine" }\n'
    told = r'unknown mechanism .*If JAX traces your function, write { function = "steps:mine" } without a kind'
    with pytest.raises(SuiteError, match=told):
        build(parse_suite(suite, "a.toml").audits[0])


@pytest.mark.parametrize(("claim", "line"), [('"gausian"', 6), ('{ kind = "gausian", mu = 1.0 }', 6)])
def test_an_unknown_kind_is_told_at_its_line(claim, line):
    suite = f'risk = 0.05\ntrials = 10\n[[audit]]\nname = "a"\nneighbours = "scalar_pair"\nclaim = {claim}\n'
    with pytest.raises(SuiteError, match=rf"^a\.toml:{line}: unknown claim 'gausian'.*did you mean 'gaussian'"):
        build(
            parse_suite(
                suite + 'mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }\n', "a.toml"
            ).audits[0]
        )


@pytest.mark.parametrize(
    ("line", "wrong", "message"),
    [
        (5, 'neighbours = "worst_case_pair"', "needs 'records'"),
        (6, 'claim = "gaussian"', "needs 'mu'"),
        (6, 'claim = { function = "nowhere:claim" }', "cannot import function"),
        (6, 'claim = { function = "math:pi" }', "neither a claim nor a function that makes one"),
        (
            7,
            'mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1, simulator = "collapsed" }',
            "no collapsed",
        ),
        (7, 'mechanism = { kind = "callable_step", function = "nowhere:step" }', "cannot import function"),
    ],
    ids=lambda case: str(case)[:30],
)
def test_what_is_wrong_with_a_part_is_told_at_its_line(line, wrong, message):
    rows = [
        "risk = 0.05",
        "trials = 10",
        "[[audit]]",
        'name = "a"',
        'neighbours = "scalar_pair"',
        'claim = { kind = "gaussian", mu = 1.0 }',
        'mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }',
    ]
    rows[line - 1] = wrong
    with pytest.raises(SuiteError, match=rf"^a\.toml:{line}: .*{message}"):
        build(parse_suite("\n".join(rows), "a.toml").audits[0])


def test_a_library_that_is_missing_is_said_before_anything_runs(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    text = 'mechanism = { kind = "optax_step" }\nclaim = { kind = "gaussian", mu = 1.0 }'
    parameters = "parameters = { records = 4, dimension = 5, clip = 1.0, noise_multiplier = 1.0 }"
    suite = f'risk = 0.05\ntrials = 10\n[[audit]]\nname = "a"\nneighbours = "worst_case_pair"\n{text}\n{parameters}\n'
    with pytest.raises(SuiteError, match=r"optax_step of audit 'a' needs optax.*pip install"):
        build(parse_suite(suite, "a.toml").audits[0])


@pytest.mark.parametrize(
    "claim",
    [
        guarantees.claim_from_table([(4.5, 1e-5), (1.0, 0.1)], relation="add_remove"),
        guarantees.claim_from_history([(1.0, 1 / 3, 1)], unit="step"),
        guarantees.renyi(orders=(2.0, 8.0), epsilons=(0.1, 0.4)),
    ],
    ids=lambda claim: claim.name,
)
def test_a_claim_from_a_table_is_written_as_it_describes_itself(claim):
    again = claim_from_text(claim.describe())
    assert (again.describe(), again.relation, again.unit) == (claim.describe(), claim.relation, claim.unit)


FOREIGN = """
[[audit]]
name = "a client"
mechanism = {{ kind = "command_step", command = ["no-such-program"] }}
neighbours = {{ kind = "{pair}" }}
claim = {claim}
"""


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ('{ kind = "gaussian", mu = 1.0, relation = "add_remove" }', "for add_remove neighbours but the pair differs"),
        ('{ kind = "fixed_batch_shuffle", rounds = 3, noise_multiplier = 1.0 }', "for zero_out neighbours"),
    ],
)
def test_a_claim_about_something_else_is_refused_before_anything_runs(claim, message):
    """With --keep-going too: such a suite is wrong, and no audit of it is drawn."""
    text = FOREIGN.replace('"{pair}"', '"exchanged_pair", dimension = 3').format(claim=claim)
    (spec,) = parse_suite(text, "suite.toml").audits
    with pytest.raises(SuiteError, match=rf"suite\.toml:2: audit 'a client': .*{message}"):
        build(spec)


def test_pairs_for_code_of_others_are_named_like_all_others():
    for words, name in (('exchanged_pair", dimension = 3', "exchanged_pair"), ('labelled_pair"', "labelled_pair")):
        text = FOREIGN.replace('"{pair}"', f'"{words}').format(claim='{ kind = "gaussian", mu = 1.0 }')
        (spec,) = parse_suite(text, "suite.toml").audits
        assert code_of(spec, catalogue()) == ("no-such-program",)
        pair = build(spec).neighbours
        assert pair.name == name


WRONG = """
[[audit]]
name = "wrong"
neighbours = "worst_case_pair"
mechanism = { kind = "one_round", normalise_by = "none" }
claim = "subsampled_gaussian"

[audit.parameters]
records = 4
dimension = 3
clip = 1.0
rate = 0.5
noise_multiplier = 1.0
"""


@pytest.mark.parametrize(
    ("right", "wrong", "line", "message"),
    [
        ("rate = 0.5", "rate = 1.5", 12, "rate must be in"),
        (
            "noise_multiplier",
            "noise_mulitplier",
            13,
            "needs 'noise_multiplier'; did you mean that by 'noise_mulitplier'",
        ),
        ("clip = 1.0", "clip = 1.0\ncolour = 3", 12, "takes the parameter 'colour'"),
        ('normalise_by = "none"', 'normalise = "none"', 5, "unknown key 'normalise'"),
    ],
)
def test_an_error_names_the_line_of_the_word_that_is_wrong(right, wrong, line, message):
    (spec,) = parse_suite(WRONG.replace(right, wrong), "s.toml").audits
    with pytest.raises(SuiteError, match=rf"^s\.toml:{line}: .*{message}"):
        build(spec)
