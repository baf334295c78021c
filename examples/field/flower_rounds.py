"""Flower: one round with server-side fixed clipping and no accountant, clip 1, noise 1, and LocalDpMod; a row is a
client's update. An update of zeros ends a round by ZeroDivisionError, so no pair has one.

Promise (serverapp/strategy/dp_fixed_clipping.py:62): 'The noise multiplier for the Gaussian mechanism for model
updates'; LocalDpMod (clientapp/mod/localdp_mod.py:35): 'Modifier for local differential privacy', with a sensitivity
that the user gives. Divisor: num_sampled_clients, fixed.
"""

import logging
import random

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
logging.getLogger("flwr").setLevel(logging.ERROR)
LOCAL = LocalDpMod(clipping_norm=1.0, sensitivity=2.0, epsilon=0.9, delta=1e-5)


class Grid:
    def __init__(self, clients):
        self.clients = clients

    def get_node_ids(self):
        return range(1, self.clients + 1)


def _arrays(values):
    return ArrayRecord({"w": Array(values)})


def _round(seed, rows, strategy):
    random.seed(seed)
    np.random.seed(seed % 2**32)
    replies = []
    for message in strategy.configure_train(
        1, _arrays(np.zeros(rows.shape[1], np.float32)), ConfigRecord(), Grid(len(rows))
    ):
        message.metadata._message_id = "1"
        update = rows[message.metadata.dst_node_id - 1].copy()
        content = RecordDict({"arrays": _arrays(update), "metrics": MetricRecord({"num-examples": 1})})
        replies.append(Message(content, reply_to=message))
    arrays, _ = strategy.aggregate_train(1, replies)
    return arrays.to_numpy_ndarrays()[0]


def _everybody():
    return FedAvg(fraction_train=1.0, min_train_nodes=1, min_available_nodes=1)


def fixed(seed, rows):
    return _round(seed, rows, DifferentialPrivacyServerSideFixedClipping(_everybody(), 1.0, 1.0, len(rows)))


def local(seed, rows):
    np.random.seed(seed % 2**32)
    asked = Message(
        RecordDict({"arrays": _arrays(np.zeros(rows.shape[1], np.float32))}), dst_node_id=1, message_type="train"
    )
    asked.metadata._message_id = "1"
    update = RecordDict({"arrays": _arrays(rows.sum(0))})
    answered = LOCAL(asked, None, lambda message, _: Message(update, reply_to=message))
    return answered.content["arrays"].to_numpy_ndarrays()[0]
