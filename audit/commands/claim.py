"""dpsgd-audit claim: what a training promises, before anyone runs it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from audit.commands.json_output import print_json
from audit.record.files import require_writable
from audit.record.record import plain
from audit.report.claims import Setting, by_normaliser, by_sampler, claim_json, print_claims
from audit.report.shuffled import print_shuffled, shuffled_json, shuffled_training, stated_if_shuffled
from audit.report.stated import Stated
from audit.suites.claim_names import claim_from_text
from audit.trials.disk_cache import laws_kept
from guarantees.checks import require
from guarantees.claim import Claim
from guarantees.summary import summarise

FIGURES = (".svg", ".png", ".pdf")


@laws_kept()
def execute(arguments: argparse.Namespace) -> int:
    """Build the claims, sum them up, print them side by side; the exit code answers --stated."""
    if arguments.shuffled:
        return _shuffled(arguments)
    if arguments.plot:
        _require_figure(arguments.plot)
    claims = _claims(arguments)
    summaries = []
    for claim in claims:
        if sys.stderr.isatty() and not arguments.quiet:
            print(f"computing {claim.describe()} ...", file=sys.stderr)
        summaries.append(summarise(claim.curve, deltas=tuple(arguments.delta or (1e-9, 1e-6, 1e-5))))
    if arguments.plot:
        from audit.report.figures import save_claims

        save_claims(claims, Path(arguments.plot))
    stated = _stated(arguments)
    by_claim = [] if stated is None else stated.by_each(claims)
    if arguments.json:
        found = [plain(claim_json(*pair)) for pair in zip(claims, summaries, strict=True)]
        answers = [{"stated": answer.says} for answer in by_claim] or [{}] * len(found)
        print_json([one | answer for one, answer in zip(found, answers, strict=True)])
    elif not arguments.quiet:
        print_claims(claims, summaries)
        for answer in by_claim:
            print(answer.says)
        for remark in _remarks(arguments):
            print(remark)
        if arguments.plot:
            print(f"Plot: {arguments.plot}")
    return min((answer.code for answer in by_claim if answer.code), default=0)


def _shuffled(arguments: argparse.Namespace) -> int:
    """Answer what holds if the loader shuffles and the accountant assumes Poisson batches."""
    others = ("claims", "sampler", "normalise_by", "plot")
    if given := [name for name in others if getattr(arguments, name)]:
        raise ValueError(
            f"--shuffled prints its own four rows, without --{given[0].replace('_', '-')}; run `claim` again for that."
        )
    setting, stated = _setting(arguments), _stated(arguments)
    found = shuffled_training(setting, deltas=tuple(arguments.delta or (1e-6, 1e-5)))
    answer = None if stated is None else stated_if_shuffled(found, stated)
    if arguments.json:
        print_json(plain(shuffled_json(found)) | ({} if answer is None else {"stated": answer.says}))
    elif not arguments.quiet:
        print_shuffled(found)
        if arguments.batch is not None and arguments.records % arguments.batch:
            smaller = f"with {arguments.records:,} records the last one is smaller"
            print(f"Computed for {setting.rounds:,} batches of one size; {smaller}.")
        if answer is not None:
            print(answer.says)
        for remark in _remarks(arguments):
            print(remark)
    return 0 if answer is None else answer.code


def _remarks(arguments: argparse.Namespace) -> list[str]:
    """Notes on the given numbers, which may not be what was meant."""
    records, batch, found = arguments.records, arguments.batch, []
    if records is None:
        return found
    large = [delta for delta in arguments.delta or () if delta * records >= 1]
    if large:
        found.append(
            f"Delta {large[0]:g} is not below 1 / {records:,} records: publishing one record at random "
            "would keep that promise, too. Choose a delta far below it."
        )
    if batch is not None and records % batch and not arguments.shuffled:
        taken = 1 / -(-records // batch)
        found.append(
            f"Computed at rate {batch:,} / {records:,} = {batch / records:.4g}; Opacus samples at 1 / len(loader) = "
            f"{taken:.4g}, since the last batch is smaller. For Opacus, give --rate {taken:.4g} and --steps."
        )
    return found


def _stated(arguments: argparse.Namespace) -> Stated | None:
    """The epsilon that is asked about, at the one given delta."""
    if arguments.stated is None:
        return None
    if len(arguments.delta or ()) != 1:
        raise ValueError("--stated is an epsilon at one delta: give --delta once, such as --stated 8 --delta 1e-5.")
    if not arguments.stated >= 0:
        raise ValueError(f"--stated must be >= 0, got {arguments.stated}.")
    return Stated(epsilon=arguments.stated, delta=arguments.delta[0])


def _setting(arguments: argparse.Namespace) -> Setting:
    rate, batches = arguments.rate, None
    if arguments.batch is not None:
        if rate is not None:
            raise ValueError("give --rate, or --batch and --records, not both: the rate is --batch / --records.")
        if arguments.records is None or not 1 <= arguments.batch <= arguments.records:
            raise ValueError("--batch needs --records of at least that number: the rate is --batch / --records.")
        rate, batches = arguments.batch / arguments.records, -(-arguments.records // arguments.batch)
    if rate is None or arguments.noise_multiplier is None:
        raise ValueError("a training needs --rate (or --batch and --records) and --noise-multiplier.")
    require("rate", 0 < rate <= 1, "in (0, 1]", rate)
    if arguments.epochs is not None and arguments.steps is not None:
        raise ValueError("give --epochs or --steps, not both: an epoch has as many steps as batches.")
    in_epochs = (arguments.epochs or 1) * (batches or round(1 / rate))
    steps = in_epochs if arguments.epochs is not None else arguments.steps
    return Setting(
        rate=rate,
        noise_multiplier=arguments.noise_multiplier,
        steps=1 if steps is None else steps,
        records=arguments.records,
        dimension=arguments.dimension,
        batches=batches,
    )


def _require_figure(path: str) -> None:
    """Refuse a file to which no figure can be written."""
    if not path.endswith(FIGURES):
        raise ValueError(f"--plot takes a file ending in {', '.join(FIGURES)}; got {path!r}.")
    require_writable(path)


def _claims(arguments: argparse.Namespace) -> list[Claim]:
    calls = [text for text in arguments.claims if "(" in text]
    names = [text for text in arguments.claims if "(" not in text]
    claims = [claim_from_text(text) for text in calls]
    if unknown := [name for name in names if name.replace("_", "-") != "subsampled-gaussian"]:
        raise ValueError(
            "write a claim like gaussian(mu=1), or `subsampled-gaussian --rate .. --noise-multiplier ..`; "
            f"got {unknown[0]!r}."
        )
    if arguments.rate is not None or arguments.batch is not None or names:
        setting = _setting(arguments)
        samplers = arguments.sampler or ([] if arguments.normalise_by else ["poisson"])
        claims += [by_sampler(sampler, setting) for sampler in samplers]
        claims += [by_normaliser(divisor, setting) for divisor in arguments.normalise_by or ()]
    if not claims:
        raise ValueError(
            "name a claim, like 'gaussian(mu=1)', or give --rate (or --batch and --records) and --noise-multiplier."
        )
    return claims
