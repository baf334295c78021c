"""Every bug of every library goes red in the default run, as what it is; a right library stays green."""

import collections

import pytest
from checks import assert_rate_at_most

from conformance.bugs import BUGS, DIFFERS, LEAKS
from conformance.classes import LIBRARIES
from conformance.session import GREEN, session

REPETITIONS = {"numpy": 20, "jax": 20, "torch": 5}
"""Whole runs of a right library; PyTorch's own operations are most of four minutes, and our side of it is NumPy's."""
FEWER = ("--dp-audit-trials=2000",)
ONE_OF_EACH = [
    pytest.param("numpy", "max_norm", LEAKS, marks=pytest.mark.long),
    ("torch", "too_much_noise", DIFFERS),
]


@pytest.fixture(autouse=True)
def _needs_torch(request):
    if request.node.callspec.params["library"] == "torch":
        pytest.importorskip("torch")


@pytest.mark.long
@pytest.mark.parametrize(("library", "bug", "verdict"), ONE_OF_EACH)
def test_one_bug_of_each_kind_goes_red_as_what_it_is(library, bug, verdict):
    assert session(library, bug, only=BUGS[bug].shows)["verdict"] == verdict


@pytest.mark.long
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_goes_red_where_it_shows_most(library, bug):
    found = session(library, bug, only=BUGS[bug].shows)
    assert found["verdict"] == BUGS[bug].verdict, found


@pytest.mark.long
@pytest.mark.parametrize("library", LIBRARIES)
def test_one_key_for_batch_and_noise_leaks_in_one_step_and_in_a_training(library):
    assert len(session(library, "one_key", only="own_noise")["leaks"]) == 2
    assert session(library, "", only="own_noise")["verdict"] == GREEN


@pytest.mark.long
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bug", [name for name, bug in BUGS.items() if bug.verdict == DIFFERS])
def test_what_does_not_leak_is_never_called_a_violation(library, bug):
    found = session(library, bug, more=FEWER if library == "torch" else ())
    assert found["verdict"] == DIFFERS, found


@pytest.fixture(scope="module")
def pooled():
    """P-values of right libraries in this process so far, by library."""
    return collections.defaultdict(list)


@pytest.mark.long
@pytest.mark.parametrize(
    ("library", "seed"), [(library, seed) for library in LIBRARIES for seed in range(REPETITIONS[library])]
)
def test_a_right_library_stays_green_and_its_p_values_are_not_below_uniform(library, seed, pooled):
    """The p-values of all audits and of the exact law together, with those of the seeds before it."""
    found = session(library, "", seed=seed, more=FEWER)
    assert found["verdict"] == GREEN, found
    pooled[library] += found["p_values"].values()
    for level in (0.01, 0.05):
        assert_rate_at_most(sum(p <= level for p in pooled[library]), len(pooled[library]), level)
