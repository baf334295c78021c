"""Audit suites for DP-SGD: run mechanisms, bound what they leak, judge it against a claim.

Names are in the stub beside this file and are imported when first used: ``import audit`` does not import JAX.
"""

from dpsgd_audit.face import show

show(__name__)
