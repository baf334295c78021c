"""The HTML page: what it says, that it stays small, that nothing in a record can break it, and in a real browser."""

import dataclasses
import html.parser
import json
import re
import shlex
import shutil

import markupsafe
import numpy as np
import pytest

import distinguishers
import guarantees
import mechanisms
from audit.bounds.bounded_numbers import EpsilonAt
from audit.bounds.clopper_pearson import ErrorCounts
from audit.diagnosis.cause_sentences import answer
from audit.procedure import run_audit
from audit.record.derive import claim_part
from audit.record.diagnosis_answer import LINE, Diagnosis
from audit.record.direction import direction
from audit.record.record import SuitePart
from audit.report.ceiling import ceiling
from audit.report.drawings import MOST_POINTS, drawing
from audit.report.look_again import look_again
from audit.report.methods import methods
from audit.report.page import MOST_OPEN, write_report
from audit.report.statement import model_card, statement
from audit.report.story import consequence, outcome, remedy, story
from audit.trials.keys import key_from_seed
from audit.verdict.proven_numbers import prove, without_errors
from guarantees.numerics.rounding import at_most


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
    assert f"2,000 trials per side can prove at most epsilon {at_most(most.epsilon)}" in text
    assert f"the exact value for this pair is {violation.exact_epsilon:.4g}" in text
    assert "Do not state this claim for this code" in text
    assert "Do not rely on the promise of 'half the noise'" in text


def test_the_promise_is_told_in_words(violation, tmp_path):
    text = " ".join("".join(read(write_report((violation,), tmp_path, title="One")).text).split())
    promised = text.partition("Promised")[2].partition("Proven")[0]
    assert f"{violation.claim.name}(" not in promised
    assert "whether one record was in the data is right at most" in promised


@pytest.mark.parametrize("verdict", ["violation", "no_violation_found", "inconclusive"])
def test_every_reason_is_told_once(violation, tmp_path, verdict):
    broken = violation.violated_at if verdict == "violation" else None
    record = dataclasses.replace(violation, verdict=verdict, reason="THE REASON.", violated_at=broken)
    text = " ".join("".join(read(write_report((record,), tmp_path, title="One")).text).split())
    assert text.count("THE REASON.") == 1
    if broken is not None:
        section = text.partition(f"{record.name} · ")[2].lower()
        assert section.count(broken.says.lower()) == 1


def test_what_looks_wrong_holds_nothing_that_is_right_and_no_line_number_breaks(violation, tmp_path):
    """It listed the stated deviation and which way it leaks; 'opa.py:24' went on as '4' in the next line."""
    way = Diagnosis(question="?", wrong=False, says="the noise is as stated.", risk=0.0, assumes="nothing", code="way")
    line = dataclasses.replace(way, wrong=True, says="it <is> wrong.", code=f"{LINE}kind", lines=(("opa.py", 24),))
    page = write_report((dataclasses.replace(violation, diagnoses=(line, way)),), tmp_path, title="One").read_text()
    assert '<li><span class="place">opa.py:24</span>: it &lt;is&gt; wrong.</li>' in page
    assert '<p class="soft">The noise is as stated.</p>' in page
    assert 'kind at <span class="place">opa.py:24</span></span></td>' in page
    assert len(re.findall("<ul[ >]", page)) == page.count("</ul>")
    assert "(not expected)" in page


def test_people_who_decide_read_which_guess_would_have_been_found(violation):
    """'An advantage of 0.054 or more above the claim or a Gaussian leak with epsilon 3.24' is no sentence for them."""
    green = dataclasses.replace(violation, verdict="no_violation_found", detectable_advantage_excess=0.1, reason="R.")
    right = at_most(50 * (1.1 + green.claim.advantage))
    assert consequence(green, None).endswith(
        f"of the time. In 8 of 10 runs this audit would have found a leak that makes {right}% of guesses right."
    )
    for unknown in (None, 0.9):
        assert consequence(dataclasses.replace(green, detectable_advantage_excess=unknown), None).endswith("; R.")


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


def test_what_never_errs_proves_its_ceiling_and_no_more():
    """Risk that a refuted claim passes on made 6.49989 of a ceiling of 6.49925."""
    clean = ErrorCounts(false_alarms=0, trials_without=2000, misses=0, trials_with=2000)
    question = EpsilonAt(delta=1e-5)
    proven = prove((clean,), question, risk=0.00203125, passed_on=0.00046875)
    erring = dataclasses.replace(clean, false_alarms=7, misses=9)
    assert without_errors(erring, question, proven, share=0.00203125) == proven.at_least


def test_inconclusive_is_no_unexpected_violation(violation):
    open_one = dataclasses.replace(violation, verdict="inconclusive", reason="too few trials.")
    assert outcome(open_one) == "could not tell"
    assert outcome(violation) == "not expected"
    assert outcome(dataclasses.replace(violation, expect="violation")) == "as expected"
    assert consequence(open_one, None).startswith("Nothing is decided: ")
    assert "proven either way" in story((open_one,)).to_do


def test_a_control_that_found_nothing_is_named_in_every_summary(violation):
    control = dataclasses.replace(
        violation, name="control", expect="violation", verdict="no_violation_found", violated_at=None, diagnoses=()
    )
    open_one = dataclasses.replace(violation, verdict="inconclusive", reason="too few trials.")
    told = "The violation expected in 'control' was not found"
    assert remedy(control).startswith(f"Do not read it as a pass. {told}")
    assert story((open_one, control)).to_do.startswith(f"{told}: the trials are too few to see it, or")
    assert "proven either way" in story((open_one, control)).to_do
    assert story((violation, control)).to_do.startswith("Do not rely on the promise of 'half the noise'")
    assert told in story((violation, control)).to_do
    assert told in statement((violation, control))
    assert told in model_card((control,), title="t")
    assert "Expected violations that were not found: control." in methods((violation, control))
    found = dataclasses.replace(violation, expect="violation")
    for text in (story((found,)).to_do, statement((found,)), methods((found,))):
        assert "not found" not in text


def test_too_few_trials_for_one_epsilon_say_how_long_more_take_and_what_needs_fewer(violation):
    def told(claim):
        part = claim_part(claim, 1e-5)
        return look_again([dataclasses.replace(one_of_two, claim=part)])

    open_one = dataclasses.replace(
        violation, verdict="inconclusive", trials_needed=3_400_000, trials=10_000, fit_trials=5_000, seconds=9.0
    )
    single = guarantees.epsilon_delta(epsilon=4.3772, delta=1e-5)
    suite = SuitePart(risk=0.05, audits=2, seed=0)
    one_of_two = dataclasses.replace(open_one, suite=suite)
    assert "run SUITE --audit 'half the noise' --look 1 --trials 3400000`" in look_again([one_of_two])
    assert "run SUITE --look 1" in look_again([one_of_two] * 2)
    assert "--look 1 --trials 3400000` (at most about 34 min an audit at this run's pace)" in told(single)
    assert consequence(one_of_two, None).endswith(" They take at most about 34 min at this run's pace.")
    for claim in (single, guarantees.claim_from_table([(4.3772, 1e-5)])):
        assert "epsilons at several deltas (`claim_from_table`)" in told(claim)
    for claim in (guarantees.gaussian(mu=1.0), guarantees.epsilon_delta(epsilon=1.0, delta=0.0)):
        assert "claim_from_table" not in told(claim)


def test_a_page_names_the_suites_file_where_it_says_what_to_type(violation, tmp_path):
    """The terminal named the file, the page said SUITE."""
    suite = SuitePart(risk=0.05, audits=2, seed=0)
    open_one = dataclasses.replace(violation, verdict="inconclusive", trials_needed=3_400, suite=suite)
    for number, named in enumerate(("fed.toml", "a <b>.toml")):
        command = shlex.join(["dpsgd-audit", "run", named, "--seed", "0"])
        page = write_report((open_one,), tmp_path / str(number), title="t", command=command).read_text()
        assert f"dpsgd-audit run {markupsafe.escape(shlex.quote(named))} --audit" in page
        assert "run SUITE" not in page
    for command in ("make audit", "dpsgd-audit run", "dpsgd-audit run --seed 0"):
        assert "run SUITE --audit" in write_report((open_one,), tmp_path, title="t", command=command).read_text()


def test_a_record_of_a_python_session_is_told_the_python_call(violation):
    """It has no suite that `run` could take."""
    alone = dataclasses.replace(violation, suite=None, verdict="inconclusive", trials_needed=3_400)
    told = look_again([alone])
    assert "To look again: `audit.run_audit(..., trials=3400, key=...)` with a new key (at most about " in told
    assert "plan ahead with policy=audit.Anytime()" in told
    assert "policy=audit.Anytime()" in look_again([dataclasses.replace(alone, trials_needed=None)])
    assert "SUITE" not in told
    assert "--look" not in told


def test_what_to_do_names_each_audit_and_what_is_left_to_audit(violation):
    other = dataclasses.replace(violation, name="twice, too")
    assert "promise of 'half the noise' and 'twice, too'" in story((violation, other)).to_do
    quiet = dataclasses.replace(violation, verdict="no_violation_found", violated_at=None, diagnoses=())
    assert "Audit other pairs and the whole training before" in remedy(quiet)
    for releases in ("transcript", "final"):
        assert "Audit other pairs before" in remedy(dataclasses.replace(quiet, releases=releases))


def test_a_pair_that_hides_its_record_says_so_after_no_violation(violation):
    """The 'worst case' of 60,000 records leaks nothing: the page said only that nothing was found."""
    quiet = dataclasses.replace(violation, verdict="no_violation_found", violated_at=None, diagnoses=())
    hidden = dataclasses.replace(quiet, exact_epsilon=0.01)
    assert "By theory this pair leaks epsilon 0.01 at delta 1e-05, far below the claim" in remedy(hidden)
    assert 'sees = "isolated"' in remedy(hidden)
    assert "far below" not in remedy(dataclasses.replace(quiet, exact_epsilon=0.9 * quiet.claim.epsilon))
    assert "By theory" not in remedy(dataclasses.replace(quiet, exact_epsilon=None))


def test_numbers_of_the_risk_that_differ_say_why(violation, tmp_path):
    page = " ".join(write_report((violation,), tmp_path, title="t").read_text().split())
    (epsilon,) = [number for number in violation.numbers if number.name == "epsilon"]
    assert epsilon.risk > violation.shares["epsilon"]
    assert "what the verdict passes on once it has refuted the claim" in page
    assert "part of the rest</th>" in page
    assert "(by the band over all thresholds; the reported epsilon has its own test)" in direction(violation).says


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


def test_a_score_that_is_the_same_in_every_trial_is_not_the_first_that_is_drawn(violation, tmp_path):
    (shown,) = violation.grids
    same = dataclasses.replace(shown, member="the same", edges=(0.0,) * len(shown.edges))
    both = dataclasses.replace(violation, grids=(same, shown))
    assert [one["member"] for one in drawing(both, None)["scores"]] == [shown.member, "the same"]
    # chosen by its number
    page = write_report((both,), tmp_path, title="Both").read_text()
    assert f'<option value="0">{shown.member}</option><option value="1">the same</option>' in page


def test_the_first_score_that_is_drawn_is_the_one_that_proves_the_violation(violation):
    """It was 'projection', whose histograms overlap, because it is the first of the battery."""
    (shown,), point = violation.grids, violation.points[0]
    names = ("not judged", "tells little", "proves it")
    grids = tuple(dataclasses.replace(shown, member=name) for name in names)
    weak = dataclasses.replace(point, member="tells little", alpha_upper=0.9, beta_upper=0.9)
    record = dataclasses.replace(violation, grids=grids, points=(weak, dataclasses.replace(point, member="proves it")))
    assert [one["member"] for one in drawing(record, None)["scores"]] == [*reversed(names[1:]), "not judged"]


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


UNNAMED = """[...document.querySelectorAll('button, select, input, a, svg[role=img], summary')].filter(each => {
  const said = each.getAttribute('aria-label') || each.textContent || (each.labels && each.labels[0]?.textContent);
  return !said || !said.trim();
}).map(each => each.outerHTML.slice(0, 80))"""
"""What a screen reader could not name."""
PALE = """(() => {
  const channel = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => .2126 * channel(c[0]) + .7152 * channel(c[1]) + .0722 * channel(c[2]);
  const colour = text => text.match(/[\\d.]+/g).map(Number);
  const behind = each => {
    for (; each; each = each.parentElement) {
      const c = colour(getComputedStyle(each).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('body *')].filter(each =>
    each.checkVisibility() && [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())
    && !each.closest('svg, script, style, noscript')
  ).map(each => {
    const [one, two] = [light(colour(getComputedStyle(each).color)), light(behind(each))];
    return [(Math.max(one, two) + .05) / (Math.min(one, two) + .05), each.outerHTML.slice(0, 80)];
  }).filter(([ratio]) => ratio < 4.5);
})()"""
"""Text whose contrast is below 4.5 to 1 (WCAG 2.2, AA)."""


def browser():
    """A browser that is driven, where there is one."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed")
    return playwright.sync_playwright(), program


def test_a_real_browser_draws_sorts_filters_and_toggles(violation, hostile, tmp_path):
    starting, program = browser()
    silent = answer("silent", wrong=True, measured="there is no noise", p_value=0.0, risk=0.01, assumes="nothing")
    passed = dataclasses.replace(violation, name="other", verdict="no_violation_found", diagnoses=(silent,))
    path = write_report((violation, hostile, passed), tmp_path, title="One")
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
        for width in (360, 721, 901, 1100, 1241):
            # between a phone and a desktop the table was cut off
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        chromium.close()
    assert complaints == []


def test_a_real_browser_prints_no_blank_page(violation, tmp_path):
    """An audit that had to stay on one page left the rest of the page before it empty."""
    starting, program = browser()
    path = write_report((violation,) * 6, tmp_path, title="Six")
    with starting as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 688, "height": 1017})
        page.goto(path.as_uri())
        page.emulate_media(media="print")
        # opens what is folded; a sheet of A4 has 688 by 1017 pixels within its margins
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        height = page.evaluate("document.body.scrollHeight")
        assert page.locator("table.audits thead").is_visible()
        printed = page.pdf(format="A4")
        chromium.close()
    pages = printed.count(b"/Type /Page") - printed.count(b"/Type /Pages")
    assert 1 <= pages <= height / 1017 * 1.25 + 1, (pages, height)


def test_a_real_browser_finds_labels_contrast_and_the_keyboard(violation, tmp_path):
    starting, program = browser()
    path = write_report((violation, dataclasses.replace(violation, name="other")), tmp_path, title="One")
    with starting as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = chromium.new_page(color_scheme=scheme)
            page.goto(path.as_uri())
            assert page.evaluate(UNNAMED) == []
            assert page.evaluate(PALE) == []
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        for _ in range(4):
            page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('th') !== null")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.closest('th').getAttribute('aria-sort')") == "ascending"
        summary = page.locator("#a1 > summary")
        summary.focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.querySelector('#a1').open") is False
        chromium.close()
