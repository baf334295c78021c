"""pfl: one iteration of SimulatedBackend, a central GaussianMechanism of (1, 1e-5), clip 1; a row is a user's update.

Promise (pfl/privacy/gaussian_mechanism.py:42): 'To ensure (epsilon, delta) differential privacy ... use the method
construct_single_iteration'; relation (pfl/privacy/privacy_accountant.py:367): 'The default neighbouring relation for
the RDP account is "add or remove one"'. Divisor: the number of users, in `average`, as FederatedAveraging calls it.
"""

import asyncio

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.metrics import Metrics
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism
from pfl.stats import MappedVectorStatistics

MECHANISM = GaussianMechanism.construct_single_iteration(1.0, 1.0, 1e-5)


class Algorithm:
    """A user's update is its row."""

    def simulate_one_user(self, model, user_dataset, context):
        return MappedVectorStatistics({"w": user_dataset.raw_data[0].copy()}, weight=1), Metrics()


class Model:
    def evaluate(self, *_, **__):
        return Metrics()


def total(seed, rows):
    return _statistics(seed, rows)["w"]


def mean(seed, rows):
    found = _statistics(seed, rows)
    found.average()
    return found["w"]


def _statistics(seed, rows):
    np.random.seed(seed % 2**32)
    users = get_user_sampler("minimize_reuse", list(range(len(rows))))
    data = FederatedDataset(lambda user: Dataset([rows[user]], user_id=str(user)), users)
    backend = SimulatedBackend(data, None, postprocessors=[WeightByUser(), CentrallyAppliedPrivacyMechanism(MECHANISM)])
    context = CentralContext(
        current_central_iteration=0,
        do_evaluation=False,
        cohort_size=len(rows),
        population=Population.TRAIN,
        algorithm_params=None,
        model_train_params=None,
        model_eval_params=None,
        seed=int(np.random.randint(2**31)),
    )
    gathered = backend.async_gather_results(model=Model(), training_algorithm=Algorithm(), central_context=context)
    return asyncio.run(gathered)[0]
