"""What peers say about outputs that were drawn before: `power_peers.py` runs this in the peers' own Python.

    python benchmarks/peer_verdicts.py TOOL FOLDER [--checkout PATH]

FOLDER holds one .npz for each audit (`power_peers.Job`). Prints a line for each: its name, whether the tool says that
the claim is broken, and processor seconds; the first line is the seconds of the imports. Nothing of JAX or of this
project is imported, so any Python that has the peer will do. Every tool may be wrong about a right mechanism with
probability RISK, as far as it lets one say so.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.abc
import importlib.machinery
import io
import math
import os
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

RISK = 0.05
DELTAS = (1e-5, 0.1)
"""Where jax_privacy is asked: what users ask, and where ten thousand outputs show most."""
EPSILON = 0.1
"""Where dp_auditorium's testers are asked: their errors grow with exp(epsilon), and zero is refused."""
ORDER, BOUND = 1.5, 1.0
"""Of the Renyi tester: the divergence's order and the bound on its network's output."""
DELTA_STEPS = 90
"""Points of the claimed curve that Delta-Siege looks at."""


def normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Promise:
    """Every claim of the zoo: the Gaussian mechanism with this noise multiplier on a Poisson sample (rate 1: all)."""

    rate: float
    noise_multiplier: float

    def delta(self, epsilon: float) -> float:
        """``q delta_G(ln(1 + (e^epsilon - 1) / q))``; below zero by the symmetry of the promise."""
        if epsilon < 0:
            return -math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon)
        own, mu = math.log1p(math.expm1(epsilon) / self.rate), 1.0 / self.noise_multiplier
        return self.rate * max(0.0, normal_cdf(mu / 2 - own / mu) - math.exp(own) * normal_cdf(-mu / 2 - own / mu))

    def epsilon(self, delta: float) -> float:
        """Smallest at this delta."""
        return falling_root(lambda epsilon: self.delta(epsilon) - delta, 0.0, 50.0)

    def renyi(self, order: float) -> float:
        """The larger Renyi divergence of both directions, by the trapezoidal rule."""
        x = np.linspace(-40.0, 40.0, 400_001) * self.noise_multiplier
        plain = -0.5 * (x / self.noise_multiplier) ** 2
        with np.errstate(divide="ignore"):
            loss = np.logaddexp(np.log1p(-self.rate), np.log(self.rate) + (x - 0.5) / self.noise_multiplier**2)
        mass = np.exp(plain) / np.exp(plain).sum()
        return max(math.log((mass * np.exp(power * loss)).sum()) / (order - 1) for power in (order, 1 - order))


def falling_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function crosses zero, by bisection; an end where it does not."""
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return high


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """One audit: outputs of both sides, and two scores of them."""

    promise: Promise
    sides: tuple[np.ndarray, np.ndarray]
    """Without and with the record, shape (outputs, coordinates)."""
    projections: tuple[np.ndarray, np.ndarray]
    """Of every output on the record's gradient."""
    best: tuple[np.ndarray, np.ndarray]
    """The score that our battery learnt and chose on other outputs than these."""


def loaded(path: Path) -> Outputs:
    with np.load(path) as kept:
        promise = Promise(rate=float(kept["rate"]), noise_multiplier=float(kept["noise_multiplier"]))
        pairs = {name: (kept[f"{name}_without"], kept[f"{name}_with"]) for name in ("sides", "projections", "best")}
    return Outputs(promise=promise, **pairs)


Verdict = Callable[[Outputs], bool]


def jax_privacy(score: str, delta: float) -> Verdict:
    """Clopper-Pearson in both directions, its threshold chosen on half of the scores."""
    from jax_privacy import auditing

    def verdict(given: Outputs) -> bool:
        without, with_record = getattr(given, score)
        auditor = auditing.CanaryScoreAuditor(with_record, without)
        split = auditing.Split(seed=0)
        bound = auditor.epsilon_clopper_pearson(RISK, delta, one_sided=False, threshold_strategy=split)
        return bool(bound > given.promise.epsilon(delta))

    return verdict


def dp_auditorium(tester: str, checkout: Path) -> Verdict:
    """The risk is halved over the two directions: its own runner takes the larger bound and spends it twice."""
    # its package without its generators, which need Vizier and are not asked: the pair is given
    package = types.ModuleType("dp_auditorium")
    package.__path__ = [str(checkout / "python" / "dp_auditorium" / "dp_auditorium")]
    sys.modules["dp_auditorium"] = package
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    from dp_auditorium.configs import privacy_property as properties
    from dp_auditorium.configs import property_tester_config as configs
    from dp_auditorium.testers import histogram_tester, hockey_stick_tester, mmd_tester, renyi_tester

    tf.keras.utils.set_random_seed(0)

    def asked(promise: Promise, dimension: int) -> Any:
        at = properties.ApproximateDp(epsilon=EPSILON, delta=promise.delta(EPSILON))
        if tester == "hockey_stick":
            training = hockey_stick_tester.make_default_hs_training_config()
            training.training_epochs = 10
            config = configs.HockeyStickPropertyTesterConfig(training_config=training, approximate_dp=at)
            model = hockey_stick_tester.make_default_hs_base_model()
            return hockey_stick_tester.HockeyStickPropertyTester(config, model)
        if tester == "mmd":
            kernel = configs.Kernel.KERNEL_RBF
            config = configs.MMDPropertyTesterConfig(kernel=kernel, bandwidth=0.5 / dimension, approximate_dp=at)
            return mmd_tester.MMDPropertyTester(config)
        if tester == "histogram":
            config = configs.HistogramPropertyTesterConfig(
                test_discrete_mechanism=False, histogram_size=20, min_value=-4.0, max_value=4.0, approximate_dp=at
            )
            return histogram_tester.HistogramTester(config)
        training = configs.TrainingConfig(
            training_epochs=10, batch_size=500, optimizer_learning_rate=1e-3, model_output_coordinate_bound=BOUND
        )
        promised = properties.RenyiDp(alpha=ORDER, epsilon=promise.renyi(ORDER))
        config = configs.RenyiPropertyTesterConfig(
            alpha=ORDER, training_config=training, privacy_property=properties.PrivacyProperty(renyi_dp=promised)
        )
        return renyi_tester.RenyiPropertyTester(config, renyi_tester.make_default_renyi_base_model())

    def verdict(given: Outputs) -> bool:
        sides = standardised(*(given.projections if tester == "histogram" else given.sides))
        for first, second in (sides, sides[::-1]):
            own = asked(given.promise, math.prod(first.shape[1:]))
            if own.reject_property(float(own.estimate_lower_bound(first, second, RISK / 2))):
                return True
        return False

    return verdict


def standardised(without: np.ndarray, with_record: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By mean and deviation of the outputs from which the testers train: the first half of both sides."""
    seen = np.concatenate([side[: len(side) // 2] for side in (without, with_record)])
    middle, scale = seen.mean(axis=0), seen.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return ((without - middle) / scale).astype(np.float32), ((with_record - middle) / scale).astype(np.float32)


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Empty modules for libraries that a peer imports and this job never calls."""

    def __init__(self, names: tuple[str, ...]):
        self.names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Only where nothing else finds it: it stands last."""
        del path, target
        return importlib.machinery.ModuleSpec(fullname, self) if fullname.split(".")[0] in self.names else None

    def create_module(self, spec: Any) -> types.ModuleType:
        """Any name that is asked of it is an empty class; what is called on import or as a seed does nothing."""
        module = types.ModuleType(spec.name)
        vars(module).update(
            __path__=[],
            __all__=[],
            __getattr__=lambda name: type(name, (), {}),
            enable_features=lambda *_: None,
            manual_seed=lambda _: None,
        )
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def delta_siege(classifier: str, checkout: Path) -> Verdict:
    """A quarter of the outputs each to train, to fix the threshold, to choose the direction and to judge."""
    sys.path.insert(0, str(checkout))
    others = ("torch", "pydp", "opendp", "diffprivlib", "mst", "mbi", "aim", "cdp2adp", "dpopt", "matplotlib")
    sys.meta_path.append(Absent(others))
    import optuna
    from deltasiege import DeltaSiege
    from deltasiege.attack import LinesearchEstimator, WitnessOptimization
    from deltasiege.classifiers import BitPatternFeatureTransformer, SklearnClassifier
    from deltasiege.ddsampler import SimpleSampler
    from deltasiege.logging import Logger
    from deltasiege.mechanism import Mechanism
    from deltasiege.utils import Config
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    class Replayed(Mechanism):
        """The outputs of one audit; its privacy level is the noise multiplier."""

        def _init_helper(
            self, epsilon: float, delta: float, promise: Promise, rows: list[Iterator[np.ndarray]]
        ) -> None:
            self.promise, self.rows = promise, rows
            super()._init_helper(epsilon, delta)

        def __call__(self, side: int, n: int) -> np.ndarray:
            return np.stack([next(self.rows[side]) for _ in range(n)])

        def constraint(self, epsilon: float, delta: float) -> bool:
            return epsilon >= 0 and 0 <= delta <= 1

        def guarantee_(self, epsilon: float, delta: float) -> float:
            if epsilon <= 0 or delta <= 0:
                return math.inf
            if delta >= self.promise.rate or epsilon == math.inf:
                return 0.0

            def excess(log_noise: float) -> float:
                return dataclasses.replace(self.promise, noise_multiplier=math.exp(log_noise)).delta(epsilon) - delta

            return math.exp(falling_root(excess, -7.0, 7.0))

        def perturb_delta(self, new_delta: float) -> float | None:
            return self.promise.epsilon(new_delta) if 0 < new_delta < self.promise.delta(0.0) else None

    # it pickles what it audits, and finds the class by name
    Replayed.__qualname__ = "Replayed"
    globals()["Replayed"] = Replayed
    bits = classifier == "bits"

    def verdict(given: Outputs) -> bool:
        sides = [side[:, None] for side in given.projections] if bits else given.sides
        rows = [iter(np.asarray(side, np.float64)) for side in sides]
        each = len(sides[0]) // 4
        config = Config(
            **dict.fromkeys(("n_train", "n_init", "n_check", "n_final", "batch_size"), each),
            **dict.fromkeys(("n_jobs", "n_experiments"), 1),
            confidence=1 - RISK,
        )
        start = given.promise.epsilon(1e-3)
        space = SimpleSampler(
            Replayed,
            input_pairs=[(0, 1)],
            fixed_kwargs={"promise": given.promise, "rows": rows},
            epsilon=(start, start),
            delta=(1e-3, 1e-3),
        )
        squares = FunctionTransformer(with_squares)
        steps = (BitPatternFeatureTransformer(),) if bits else (StandardScaler(), squares)
        learner = make_pipeline(*steps, LogisticRegression(max_iter=1000))
        deltas = np.geomspace(1e-9, 1.0, DELTA_STEPS)
        witness = WitnessOptimization.get_factory(estimator=LinesearchEstimator(delta_steps=deltas))
        with tempfile.TemporaryDirectory() as folder:
            siege = DeltaSiege(
                config=config,
                search_space=space,
                classifier_factories=SklearnClassifier.get_factory(classifier=learner),
                logger=Logger(Logger.State.DOWN),
                base_folder=Path(folder),
            )
            trial = siege.run("zoo", witnesses_factories=witness).experiments[0].trials[0]
        return bool(trial.witnesses[trial.best_witness_idx].estimate_c < 1)

    return verdict


def with_squares(features: np.ndarray) -> np.ndarray:
    return np.hstack([features, features**2])


def dp_recorder(checkout: Path) -> Verdict:
    """Its distributional audit: logistic regression and Youden's index on half, Clopper-Pearson on the rest."""
    sys.path.insert(0, str(checkout / "src"))
    sys.meta_path.append(Absent(("matplotlib", "seaborn", "graphviz", "pandas")))
    from dp_recorder.auditing.audit_primitives import Auditor, audit_spec
    from dp_recorder.auditing.metrics import dist_l2

    def verdict(given: Outputs) -> bool:
        rows = [iter(side) for side in given.sides]

        @audit_spec(kind="release", input_arg="side", sensitivity_arg="sensitivity", metric_fn=dist_l2)
        def release(side: np.ndarray, sensitivity: float) -> np.ndarray:
            return next(rows[int(side[0])])

        auditor = Auditor()
        with auditor:
            release(np.array([0.0]), 1.0)
        auditor.set_replay()
        with auditor:
            release(np.array([1.0]), 1.0)
        # recording took one output
        auditor.run_distributional_audit(n_samples=2 * (len(given.sides[0]) - 1), alpha=RISK)
        epsilons, deltas = auditor.log[0].privacy_profile
        allowed = np.array([given.promise.delta(float(epsilon)) for epsilon in epsilons])
        return bool(np.any(deltas > allowed + 1e-9))

    return verdict


def tools(checkout: Path) -> dict[str, Callable[[], Verdict]]:
    found: dict[str, Callable[[], Verdict]] = {
        f"jax_privacy_{score}_{delta:g}": lambda score=score, delta=delta: jax_privacy(score, delta)
        for score in ("projections", "best")
        for delta in DELTAS
    }
    for tester in ("hockey_stick", "histogram", "mmd", "renyi"):
        found[f"dp_auditorium_{tester}"] = lambda tester=tester: dp_auditorium(tester, checkout)
    for classifier in ("bits", "squares"):
        found[f"delta_siege_{classifier}"] = lambda classifier=classifier: delta_siege(classifier, checkout)
    return {**found, "dp_recorder": lambda: dp_recorder(checkout)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", choices=tools(Path()))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--checkout", type=Path, default=Path(), help="of a peer that is in no package index")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    began = time.process_time()
    verdict = tools(arguments.checkout)[arguments.tool]()
    print(f"imports {time.process_time() - began:.2f}", flush=True)
    for path in sorted(arguments.folder.glob("*.npz")):
        given, began = loaded(path), time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            accused = verdict(given)
        print(f"{path.stem} {int(accused)} {time.process_time() - began:.4f}", flush=True)


if __name__ == "__main__":
    main()
