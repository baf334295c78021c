"""dpsgd-audit claim: what a training promises, before anyone runs it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from audit.commands.disk_cache import laws_kept
from audit.record.files import require_writable
from audit.record.record import plain
from audit.report.character_plot import claim_line, print_plot
from audit.report.claims import Setting, by_normaliser, by_sampler, claim_json, print_claims
from audit.report.escaping import json_text
from audit.report.shuffled import print_shuffled, shuffled_json, shuffled_training
from audit.suites.claim_names import claim_from_text
from guarantees.claim import Claim
from guarantees.summary import summarise

FIGURES = (".svg", ".png", ".pdf")


def execute(arguments: argparse.Namespace) -> int:
    """Build the claims, sum them up, print them side by side."""
    with laws_kept():
        return _execute(arguments)


def _execute(arguments: argparse.Namespace) -> int:
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
    if arguments.json:
        print(json_text([plain(claim_json(*pair)) for pair in zip(claims, summaries, strict=True)]))
    elif not arguments.quiet:
        print_claims(claims, summaries)
        print_plot([claim_line(claim) for claim in claims], asked=arguments.plot == "")
        if arguments.plot:
            print(f"Plot: {arguments.plot}")
    return 0


def _shuffled(arguments: argparse.Namespace) -> int:
    """What holds if the loader shuffles and the accountant says Poisson."""
    others = ("claims", "sampler", "normalise_by", "plot")
    if given := [name for name in others if getattr(arguments, name)]:
        raise ValueError(
            f"--shuffled prints its own four rows, and takes no {given[0].replace('_', '-')}: call claim twice."
        )
    found = shuffled_training(_setting(arguments), deltas=tuple(arguments.delta or (1e-6, 1e-5)))
    if arguments.json:
        print(json_text(plain(shuffled_json(found))))
    elif not arguments.quiet:
        print_shuffled(found)
    return 0


def _setting(arguments: argparse.Namespace) -> Setting:
    if arguments.rate is None or arguments.noise_multiplier is None:
        raise ValueError("a training needs --rate and --noise-multiplier.")
    return Setting(
        rate=arguments.rate,
        noise_multiplier=arguments.noise_multiplier,
        steps=arguments.steps,
        records=arguments.records,
        dimension=arguments.dimension,
    )


def _require_figure(path: str) -> None:
    """A file that a figure can be written to; a claim that stands behind --plot is none."""
    if not path.endswith(FIGURES):
        raise ValueError(
            f"--plot takes a file ending in {', '.join(FIGURES)}, or nothing if it comes last; got {path!r}."
        )
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
    if arguments.rate is not None or names:
        setting = _setting(arguments)
        samplers = arguments.sampler or ([] if arguments.normalise_by else ["poisson"])
        claims += [by_sampler(sampler, setting) for sampler in samplers]
        claims += [by_normaliser(divisor, setting) for divisor in arguments.normalise_by or ()]
    if not claims:
        raise ValueError("name a claim, like 'gaussian(mu=1)', or give --rate and --noise-multiplier.")
    return claims
