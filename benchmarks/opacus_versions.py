"""Table 2 of [wang2026] by measurement: what each version of Opacus divides by, and what that costs.

dpsgd-audit run suites/opacus-versions.toml --allow-install --out versions
python benchmarks/opacus_versions.py versions/records.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import mechanisms
from audit.record.record import AuditRecord
from audit.record.stored import load_records
from mechanisms.adapters.trial_seeds import trial_seeds

LOADERS = ((1000, 600), (1000, 10), (1001, 10), (103, 10), (98, 2), (50, 1), (49, 1))
NOISE, CLIP = 10.0, 0.1


def version_row(record: AuditRecord) -> str:
    parameters = record.mechanism.parameters
    delta = record.report_delta
    cells = (
        parameters["version"],
        parameters["loss_reduction"],
        f"{record.neighbours.parameters['records']}, {parameters['batch_size']}",
        divisors(record),
        f"{record.trials:,}",
        f"{record.epsilon(delta):.2f} ({record.claim.epsilon:.3f})",
        f"{record.delta(record.claim.epsilon):.3f} ({delta:g})",
        record.verdict.replace("_", " "),
    )
    return "| " + " | ".join(cells) + " |"


def divisors(record: AuditRecord) -> str:
    """What the diagnoses of a violation say about the divisor, without and with the record."""
    answers = {answer.code: answer for answer in record.diagnoses}
    if not answers:
        return "not asked"
    if answers["scale_by_trial"].wrong:
        return "differs from trial to trial"
    sides = (answers[f"scale_{side}"].estimate or 0.0 for side in ("without", "with"))
    return " / ".join(f"{NOISE * CLIP / deviation:.2f}" for deviation in sides)


def loader_row(records: int, batch_size: int, trials: int) -> str:
    """The rate at which records join a batch, and the divisor, of the installed version."""
    seeds = trial_seeds(np.array([5, records], np.uint32), 0, trials)
    counted = mechanisms.opacus_step(batch_size=batch_size, clip=1.0, noise_multiplier=0.0, loss_reduction="sum")
    sizes = counted.prepare(np.ones((records, 1), np.float32))(seeds)[:, 0]
    step = mechanisms.opacus_step(batch_size=batch_size, clip=CLIP, noise_multiplier=NOISE)
    noise = step.prepare(np.zeros((records, 100), np.float32))(seeds)
    divisor = "0: every update is infinite" if not np.isfinite(noise).all() else f"{NOISE * CLIP / noise.std():.3g}"
    rate, error = sizes.mean() / records, sizes.std() / records / np.sqrt(trials)
    cells = (str(records), str(batch_size), f"{batch_size / records:.4g}", f"{rate:.4g} ± {2 * error:.2g}", divisor)
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("records", type=Path)
    options.add_argument("--trials", type=int, default=400)
    arguments = options.parse_args()
    print("| version | reduction | N, batch | divisor found | trials | epsilon at 1e-5 | delta | verdict |")
    print("|---|---|---|---|---|---|---|---|")
    for record in load_records(arguments.records):
        print(version_row(record))
    print()
    print("| N | batch | batch / N | rate found | divisor found |")
    print("|---|---|---|---|---|")
    for records, batch_size in LOADERS:
        print(loader_row(records, batch_size, arguments.trials))


if __name__ == "__main__":
    main()
