"""NVFlare: SVTPrivacy on one client's update, the sum of its rows, with epsilon 1 for the choice and 1 for the values.

Promise (app_common/filters/svt_privacy.py:142): 'Implementation of the standard Sparse Vector Technique (SVT)
differential privacy algorithm'; its ledger adds epsilon and epsilon_release.
"""

import logging

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

logging.disable(logging.CRITICAL)


def release(seed, rows):
    np.random.seed(seed % 2**32)
    private = SVTPrivacy(fraction=0.1, epsilon=1.0, epsilon_release=1.0, gamma=1.0, tau=0.5)
    given = DXO(DataKind.WEIGHT_DIFF, data={"w": rows.sum(0)})
    return private.process_dxo(given, Shareable(), FLContext()).data["w"]
