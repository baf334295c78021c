"""The command line's names, help and options, with no heavy import."""

from __future__ import annotations

import argparse
import dataclasses
import decimal
import fractions
from collections.abc import Callable

from audit.report.catalogue import FIGURES, PAGE, TEXTS
from audit.suites.read import seconds
from audit.suites.suite import SuiteError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One subcommand; ``audit.commands.<name>.execute`` does its work."""

    name: str
    help: str
    options: Callable[[argparse.ArgumentParser], None]


def _duration(text: str) -> float:
    try:
        return seconds(text, "--time-budget")
    except SuiteError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _rate(text: str) -> float:
    """A number, or the fraction by which people know it, such as 256/60000."""
    try:
        return float(fractions.Fraction(text.replace(" ", ""))) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"must be a number or a fraction such as 256/60000, got {text!r}") from None


def risk_of(confidence: float) -> float:
    """``1 - confidence`` in decimals, so that 0.95 gives a risk of exactly 0.05."""
    if not 0 < confidence < 1:
        raise ValueError(f"--confidence must lie between 0 and 1, got {confidence}.")
    return float(1 - decimal.Decimal(str(confidence)))


def _speech(parser: argparse.ArgumentParser) -> None:
    """Options of every command about what it prints."""
    _flag(parser, "--json", "print machine-readable JSON on standard output")
    _flag(parser, "--quiet", "print only warnings, errors and --json output; the exit code says the rest")


def _suite(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", nargs="?", help="suite file (TOML); without one, the built-in default suite")


def _flag(parser: argparse.ArgumentParser, name: str, says: str) -> None:
    parser.add_argument(name, action="store_true", help=says)


def _sizes(parser: argparse.ArgumentParser) -> None:
    """Options that override the suite."""
    parser.add_argument("--trials", type=int, help="outputs drawn per audit, both datasets together (even)")
    parser.add_argument("--confidence", type=float, help="1 - risk for the whole suite, e.g. 0.99")


def _run(parser: argparse.ArgumentParser) -> None:
    _suite(parser)
    parser.add_argument(
        "--audit",
        action="append",
        metavar="NAME",
        help="run only this audit, with its share of the whole suite's risk; repeatable",
    )
    parser.add_argument(
        "--out", default="audit-report", metavar="DIR", help="folder for the report (default: %(default)s)"
    )
    _sizes(parser)
    parser.add_argument("--seed", type=int, help="seed that determines every number in the report")
    parser.add_argument(
        "--time-budget", type=_duration, metavar="60s", help="time limit of the whole suite: 60s, 5m, 1h"
    )
    _flag(parser, "--stop-early", "stop each audit as soon as its claim is refuted (policy anytime)")
    parser.add_argument(
        "--look",
        type=int,
        metavar="K",
        help="K-th look at the same audits: 2^-K of the risk, new trials; start with --look 1 if you may look again",
    )
    _flag(parser, "--resume", "also continue and reuse audits of foreign code; changes to its files go unnoticed")
    parser.add_argument(
        "--like",
        metavar="OLD.json",
        help="judge each audit by the thresholds of its record in this file, so that `compare` has a common test",
    )
    parser.add_argument(
        "--executor",
        choices=["local", "dask"],
        default="local",
        help="what draws the trials: this process or a Dask cluster (docs/cluster.md); the numbers are the same",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="address or scheduler file of a Dask cluster; without it, one is started here",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="worker processes to start, or to wait for at --scheduler"
    )
    _flag(parser, "--keep-going", "give an audit that fails the verdict could_not_run, and run the others")
    _allow_install(parser)
    _flag(parser, "--fresh", "start over instead of continuing an interrupted run")
    _flag(parser, "--fresh-seed", "draw a new seed and print it")
    parser.add_argument("--junit", metavar="FILE", help="also write JUnit XML")
    parser.add_argument("--markdown", metavar="FILE", help="also write a Markdown summary")
    parser.add_argument("--sarif", metavar="FILE", help="also write SARIF, with one result per unexpected verdict")
    _speech(parser)


def _allow_install(parser: argparse.ArgumentParser) -> None:
    _flag(
        parser,
        "--allow-install",
        "create the environments that the suite names; downloads packages and runs their installers, once",
    )


def _plan(parser: argparse.ArgumentParser) -> None:
    _suite(parser)
    _sizes(parser)
    parser.add_argument(
        "--power", type=float, default=0.8, help="power at which a leak counts as detectable (default: %(default)s)"
    )
    _flag(
        parser,
        "--run-code",
        "also plan audits that name code or commands: run them to learn scores and for a pilot",
    )
    _flag(parser, "--keep-going", "report an audit that fails, and plan the others (exit code 2)")
    _allow_install(parser)
    parser.add_argument(
        "--one-run",
        type=int,
        metavar="CANARIES",
        help="instead of a suite: what one training with this many canaries can prove about --claim, and its limit",
    )
    parser.add_argument("--claim", metavar="CLAIM", help="with --one-run: the claim, such as 'gaussian(mu=1)'")
    parser.add_argument(
        "--delta",
        type=float,
        default=1e-5,
        help="with --one-run: epsilon is proven at this delta (default: %(default)s)",
    )
    _speech(parser)


def _explain(parser: argparse.ArgumentParser) -> None:
    _suite(parser)
    parser.add_argument("--audit", action="append", metavar="NAME", help="explain only this audit; repeatable")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="replay N audits at once (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, help="seed of the replay's random numbers (default: the suite's seed)")
    parser.add_argument(
        "--records",
        metavar="RECORDS.json",
        help="records of a run of this suite; `explain` repeats the lines that it named and replays the other audits",
    )
    parser.add_argument(
        "--sarif",
        metavar="FILE",
        help="also write SARIF: the lines that look wrong, and what --records say",
    )
    parser.set_defaults(confidence=None, trials=None)
    _speech(parser)


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD.json", help="records of an earlier run, such as a committed baseline")
    parser.add_argument("new", metavar="NEW.json", help="records of the new run")
    parser.add_argument("--confidence", type=float, default=0.999, help="1 - risk (default: %(default)s)")
    _speech(parser)


def _list(parser: argparse.ArgumentParser) -> None:
    _flag(parser, "--schema", "print the JSON Schema of suite files, for editors")
    _speech(parser)


def _bound(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--without",
        required=True,
        metavar="A.npy",
        help="scores on the dataset without the record, or outputs (one row per trial; a third of them learn a score): "
        ".npy, .npz or .csv; FILE:NAME names an array or a column, FILE:NAME:LABEL=0 the rows whose column LABEL is 0, "
        "FILE:all every column of a table of outputs",
    )
    parser.add_argument(
        "--with", dest="with_record", required=True, metavar="B.npy", help="the same on the dataset with the record"
    )
    parser.add_argument(
        "--delta", type=float, default=1e-5, help="epsilon is bounded at this delta (default: %(default)s)"
    )
    parser.add_argument("--confidence", type=float, default=0.95, help="1 - risk (default: %(default)s)")
    parser.add_argument(
        "--threshold",
        type=float,
        action="append",
        help="threshold that you fixed before looking at these scores; repeatable",
    )
    parser.add_argument(
        "--claim",
        metavar="'gaussian(mu=1)'",
        help="claim to judge, written as in Python: name(parameter=number, ...)",
    )
    _flag(
        parser,
        "--one-run",
        "the scores belong to canaries in one training, left out (--without) or included (--with) by fair coins",
    )
    parser.add_argument(
        "--guesses",
        nargs=2,
        type=int,
        action="append",
        metavar=("IN", "OUT"),
        help="for --one-run: how many canaries to guess 'in' and 'out', fixed before looking; repeatable",
    )
    parser.add_argument(
        "--target", choices=["verdict", "epsilon", "delta", "mu"], help="spend the whole risk on this statement"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="selects the tenth of the scores that chooses thresholds, with --one-run the order of tied scores; "
        "choose it before looking (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="with --claim: also write a page and a record, for `report`, `verify` and `compare`",
    )
    parser.add_argument("--name", help="what the record and its reports are called")
    parser.add_argument("--markdown", metavar="FILE", help="also write a Markdown table: with --claim a model card")
    _speech(parser)


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", nargs="+", metavar="RECORDS.json", help="records that `run` or `bound --out` wrote")
    parser.add_argument(
        "--format",
        choices=[PAGE, *TEXTS],
        default=PAGE,
        help="what to write (default: %(default)s)",
    )
    parser.add_argument("--figures", choices=FIGURES, help="write one trade-off figure per audit instead")
    parser.add_argument(
        "--width", default="3.3in", help="width of a figure: 3.3in, 8.5cm, 240pt (default: %(default)s)"
    )
    parser.add_argument(
        "--out",
        metavar="PATH",
        help="a folder for figures and, if it has no extension, for HTML and LaTeX; otherwise a file (default: figures "
        "and HTML beside the records, everything else on standard output)",
    )
    parser.add_argument("--title", help="title of the report (default: the suite's, if the records have one)")
    _speech(parser)


def _plot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", metavar="RECORDS.json", help="records that `run` or `bound --out` wrote")
    parser.add_argument("--x", required=True, metavar="PARAMETER", help="parameter of the audits: rate, records, ...")
    parser.add_argument(
        "--y", choices=["epsilon", "delta", "mu"], default="epsilon", help="number to plot (default: %(default)s)"
    )
    parser.add_argument("--series", metavar="PARAMETER", help="draw one line for each value of this parameter")
    parser.add_argument(
        "--width", default="3.3in", help="width of the figure: 3.3in, 8.5cm, 240pt (default: %(default)s)"
    )
    parser.add_argument("--out", default="sweep.pdf", metavar="FILE", help="file to write (default: %(default)s)")
    _speech(parser)


def _verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", metavar="RECORDS.json", help="records that `run` or `bound --out` wrote")
    parser.add_argument(
        "--rerun",
        type=float,
        default=0.0,
        metavar="FRACTION",
        help="draw this fraction of the trials again (default: none)",
    )
    parser.add_argument(
        "--suite",
        metavar="SUITE.toml",
        help="take the parts from this suite (needed for your own code and programs)",
    )
    _flag(
        parser, "--strict", "use no cached values, and also exit with 3 if not everything was drawn again (--rerun 1)"
    )
    _flag(parser, "--details", "print every check, and name what nothing recomputes")
    _speech(parser)


def _claim(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "claims",
        nargs="*",
        metavar="CLAIM",
        help="'gaussian(mu=1)', 'zcdp(rho=0.5)', ... as in Python, or subsampled-gaussian with the options below",
    )
    parser.add_argument("--rate", type=_rate, help="sampling rate of a batch: 0.01, or 256/60000")
    parser.add_argument("--batch", type=int, metavar="N", help="expected batch size; the rate is N / --records")
    parser.add_argument(
        "--noise-multiplier", "--noise", type=float, help="standard deviation of the noise divided by the clipping norm"
    )
    parser.add_argument("--steps", type=int, help="number of steps (default: 1)")
    parser.add_argument("--epochs", type=int, metavar="N", help="number of epochs, instead of --steps")
    parser.add_argument("--records", type=int, help="records in the dataset (with --normalise-by: in the smaller one)")
    parser.add_argument("--dimension", type=int, help="number of parameters, for --normalise-by")
    parser.add_argument(
        "--sampler",
        action="append",
        metavar="S",
        help="poisson, shuffle, shuffle-upper, isolated-shuffle, balls-and-bins, deterministic; repeatable",
    )
    parser.add_argument(
        "--normalise-by",
        action="append",
        metavar="D",
        help="none, expected_batch, realised_batch, floored_expected_batch; repeatable",
    )
    _flag(
        parser,
        "--shuffled",
        "the loader shuffles but the accountant assumes Poisson: print what is claimed, what leaks at least and what "
        "is guaranteed at most",
    )
    parser.add_argument("--delta", type=float, action="append", help="report epsilon at this delta; repeatable")
    parser.add_argument(
        "--stated",
        type=float,
        metavar="EPSILON",
        help="check whether this epsilon holds at --delta (exit code 0: yes; 1: no, or not promised; 3: not known)",
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="draw the trade-off curves into a file (.svg, .png, .pdf)",
    )
    _speech(parser)


COMMANDS = (
    Command(name="run", help="run an audit suite and write a report", options=_run),
    Command(name="plan", help="predict what a suite can show, before running it", options=_plan),
    Command(name="explain", help="name the lines of code that look wrong, without drawing trials", options=_explain),
    Command(name="compare", help="say whether leakage changed between two record files", options=_compare),
    Command(name="list", help="list mechanisms, neighbours, distinguishers, claims and policies", options=_list),
    Command(
        name="bound", help="bound epsilon, delta and mu from scores or outputs that you already have", options=_bound
    ),
    Command(name="claim", help="print what a training promises: curves, epsilons, mu, regret", options=_claim),
    Command(name="verify", help="recompute everything that follows from the counts of a record", options=_verify),
    Command(
        name="report",
        help="turn records into HTML, text, LaTeX, Markdown, CSV, JUnit XML, SARIF or figures",
        options=_report,
    ),
    Command(name="plot", help="plot what is proven against a parameter of the audits", options=_plot),
)
