"""Counts in, limits out: every bound and p-value that the verdict may rest on. No JAX.

Names are in the stub beside this file and are imported when first used.
"""

from dpsgd_audit.face import show

show(__name__)
