"""What privacy promises mean: exact and certified trade-off curves, without simulation and without JAX.

Names are in the stub beside this file and are imported when first used: no accountant is needed for the curves that do
without one.
"""

from dpsgd_audit.face import show

show(__name__)
