"""What trials and risk were spent on, score by score: in the record's lines and on the page, and all of the risk."""

import dataclasses
import re

import pytest
from made_records import made

from audit.policies.catalogue import POLICIES
from audit.report.page import write_report
from audit.report.spent import spent
from audit.report.text import record_lines


@pytest.fixture(scope="module")
def record():
    return made("split", POLICIES["split"](fit_trials=200))


def test_fit_trials_of_one_score_choose_thresholds_alone(record):
    assert spent(record).startswith(
        f"200 fit trials, which judge nothing: 200 to choose thresholds. All {record.trials:,} judged trials count; "
    )
    assert spent(made("theory", POLICIES["from_theory"]())) == ""


def test_the_shares_that_are_told_are_the_risk(record):
    shares = [float(told) for told in re.findall(r"(?:\(|, )(?:\w+ )?([\d.e-]+)(?=[,)])", spent(record))]
    assert sum(shares) == pytest.approx(record.risk, rel=0.05)


def test_a_battery_says_which_score_got_which_part(record, tmp_path):
    first, *others = record.points
    names = ("norm", "learned", "ratio")
    battery = dataclasses.replace(
        record,
        fit_trials=440,
        distinguisher=dataclasses.replace(record.distinguisher, name="battery", parameters={"learnt_from": 240}),
        grids=tuple(dataclasses.replace(record.grids[0], member=name) for name in names),
        points=(
            dataclasses.replace(first, member="learned"),
            *(dataclasses.replace(point, member="norm") for point in others),
        ),
    )
    told = spent(battery)
    assert "240 to learn scores, 200 to choose which of 3 scores to judge, and thresholds. All" in told
    assert "judged trials count for each of 3 scores; of the risk of 0.05: learned (verdict 0.01), norm (" in told
    assert f"  spent:   {told}" in record_lines(battery)
    assert write_report((battery,), tmp_path, title="t").read_text().count(told) == 1
