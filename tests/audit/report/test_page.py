"""The HTML page: what it says, that it stays small, that nothing in a record can break it, and in a real browser."""

import dataclasses
import html.parser
import json
import re
import shutil

import numpy as np
import pytest

import distinguishers
import guarantees
import mechanisms
from audit.procedure import run_audit
from audit.report.ceiling import ceiling
from audit.report.drawings import MOST_POINTS, drawing
from audit.report.page import MOST_OPEN, write_report
from audit.report.repeat import program
from audit.report.story import consequence, outcome, story
from audit.trials.keys import key_from_seed


class Reader(html.parser.HTMLParser):
    """Collects the text, the elements and every address of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for key, value in attrs if key in ("href", "src") and value]

    def handle_data(self, data):
        self.text.append(data)


def read(path):
    reader = Reader()
    reader.feed(path.read_text())
    return reader


def test_the_page_says_delta_ceiling_exact_value_and_what_to_do(violation, tmp_path):
    text = " ".join("".join(read(write_report((violation,), tmp_path, title="One")).text).split())
    most = ceiling(violation)
    assert "at delta 1e-05" in text
    assert f"2,000 trials per side can prove at most epsilon {most.epsilon:.3g}" in text
    assert f"the exact value for this pair is {violation.exact_epsilon:.4g}" in text
    assert "Do not state this claim for this code" in text
    assert "Do not rely on the promise of half the noise" in text


def test_a_page_asks_nothing_of_the_network(violation, tmp_path):
    reader = read(write_report((violation,), tmp_path, title="One"))
    assert reader.tags.count("script") == 3
    assert all(address.startswith("#") for address in reader.addresses)


def test_hostile_names_stay_text(hostile, tmp_path):
    path = write_report((hostile,), tmp_path, title=hostile.name)
    reader = read(path)
    assert reader.tags.count("script") == 3
    assert "</script><script>alert(1)</script>" in "".join(reader.text)
    data = re.search(r'id="drawings">(.*?)</script>', path.read_text(), flags=re.DOTALL).group(1)
    json.loads(data)


def test_the_ceiling_is_what_no_errors_prove(violation):
    most = ceiling(violation)
    assert violation.epsilon(1e-5) < most.epsilon < violation.exact_epsilon
    perfect = dataclasses.replace(violation.points[0].counts, false_alarms=0, misses=0)
    from audit.bounds.inversion import joint_epsilon_bound

    share = next(number.risk for number in violation.numbers if number.name == "epsilon")
    assert most.epsilon >= joint_epsilon_bound(perfect, delta=1e-5, risk=share)
    assert ceiling(dataclasses.replace(violation, stops_early=True)) is None


def test_inconclusive_is_no_unexpected_violation(violation):
    open_one = dataclasses.replace(violation, verdict="inconclusive", reason="too few trials.")
    assert outcome(open_one) == "could not tell"
    assert outcome(violation) == "unexpected violation"
    assert outcome(dataclasses.replace(violation, expect="violation")) == "as expected"
    assert "could not decide" in consequence(open_one, None)
    assert "prove nothing either way" in story((open_one,)).to_do


def test_drawn_curves_are_thin_and_keep_their_ends(violation):
    curves = drawing(violation, ceiling(violation))["tradeOff"]
    assert len(curves["claim"]) <= MOST_POINTS
    assert curves["claim"][0] == [0.0, 1.0]
    assert curves["claim"][-1] == [1.0, 0.0]


def test_histograms_hold_every_trial(violation):
    shown = drawing(violation, None)["scores"][0]
    widths = [b - a for a, b in zip(shown["edges"], shown["edges"][1:], strict=False)]
    for side in ("without", "with"):
        inside = sum(w * d for w, d in zip(widths, shown[side]["density"], strict=True))
        assert inside + shown[side]["below"] + shown[side]["above"] == pytest.approx(1.0, abs=0.01)


def test_the_point_at_which_the_claim_broke_is_drawn(violation):
    broken, test = violation.violated_at, violation.points[0]
    assert drawing(violation, None)["tradeOff"]["violated"] is not None
    by_number = dataclasses.replace(broken, number=test.target, false_alarm_rate=None, miss_rate=None)
    shown = drawing(dataclasses.replace(violation, violated_at=by_number), None)["tradeOff"]["violated"]
    assert shown == pytest.approx([test.alpha_upper, test.beta_upper], rel=1e-3)
    assert drawing(dataclasses.replace(violation, violated_at=None), None)["tradeOff"]["violated"] is None


def test_a_program_that_repeats_names_what_the_score_supposes(violation):
    assert "score = distinguishers.likelihood_ratio(step, pair)\n" in program(violation)
    reads = violation.distinguisher.parameters
    supposed = dict(reads["mechanism"], noise_multiplier=2.0)
    other = dataclasses.replace(violation.distinguisher, parameters={**reads, "mechanism": supposed})
    told = program(dataclasses.replace(violation, distinguisher=other))
    assert "likelihood_ratio(mechanisms.gaussian_mechanism(noise_multiplier=2.0" in told


def test_a_page_of_many_draws_only_what_was_judged(violation, tmp_path):
    other = dataclasses.replace(violation.grids[0], member="an idle score")
    two = dataclasses.replace(violation, grids=(*violation.grids, other))
    assert len(drawing(two, None)["scores"]) == 2
    few = write_report((two,), tmp_path / "few", title="Few").read_text()
    many = write_report((two,) * (MOST_OPEN + 1), tmp_path / "many", title="Many").read_text()
    assert "an idle score</option>" in few
    assert "an idle score" not in many
    assert "only the scores that were judged" in many
    assert "at most 80 points" in many


MILLION = 10**6


@pytest.mark.long
@pytest.mark.parametrize("told", [True, False], ids=["likelihood ratio", "battery"])
def test_five_hundred_audits_of_a_million_trials_stay_under_eight_megabytes(told, tmp_path):
    """Counts of each are drawn anew from those of one real audit."""
    pair = mechanisms.worst_case_pair(records=4, dimension=20, clip=0.1)
    step = mechanisms.one_round(normalise_by="expected_batch", rate=0.05, clip=0.1, noise_multiplier=10.0)
    one = run_audit(
        step,
        pair,
        distinguishers.likelihood_ratio(step, pair) if told else None,
        claim=guarantees.subsampled_gaussian(rate=0.05, noise_multiplier=10.0),
        trials=MILLION if told else MILLION // 50,
        risk=1e-4,
        key=key_from_seed(0),
    )
    draw = np.random.default_rng(0)

    def anew(cells):
        share = np.asarray(cells) / sum(cells)
        return tuple(map(int, draw.multinomial(MILLION // 2, share)))

    def another(number):
        grids = tuple(
            dataclasses.replace(grid, without=anew(grid.without), with_record=anew(grid.with_record))
            for grid in one.grids
        )
        return dataclasses.replace(one, name=f"EASGM, audit {number}", trials=MILLION, grids=grids)

    many = tuple(map(another, range(500)))
    assert write_report(many, tmp_path, title="Many").stat().st_size < 8e6


def browser():
    """A browser that is driven, where there is one."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed")
    return playwright.sync_playwright(), program


def test_a_real_browser_draws_sorts_filters_and_toggles(violation, hostile, tmp_path):
    starting, program = browser()
    records = (violation, hostile, dataclasses.replace(violation, name="other", verdict="no_violation_found"))
    path = write_report(records, tmp_path, title="One")
    with starting as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = chromium.new_page()
        complaints = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda asked: complaints.append(asked.url) if asked.url[:5] not in ("file:", "data:") else None
        )
        page.goto(path.as_uri())
        assert page.locator("figure svg path").count() > 6
        before = page.locator("#a1 figure svg path").first.get_attribute("d")
        page.locator("#a1 button[data-axes=log]").first.click()
        assert page.locator("#a1 figure svg path").first.get_attribute("d") != before
        page.locator("#a1 figure svg").first.hover()
        assert "claimed" in page.locator("#a1 .hover").first.inner_text()
        assert "violated here" in page.locator("#a1 .legend").first.inner_text()
        page.locator("#filter-verdict").select_option("no_violation_found")
        assert page.locator("table.audits tbody tr:visible").count() == 1
        page.locator("#filter-verdict").select_option("")
        page.locator("th button").nth(0).click()
        assert page.locator("table.audits th").first.get_attribute("aria-sort") == "ascending"
        chromium.close()
    assert complaints == []
