"""Simulators: pure JAX functions from a key and a dataset to an output, and steps of other libraries.

Names are in the stub beside this file and are imported when first used.
"""

from dpsgd_audit.face import show

show(__name__)
