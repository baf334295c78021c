"""Every bound and p-value that a verdict may rest on: integer counts in, limits out. No JAX.

Names are in the stub beside this file and are imported when first used.
"""

from dpsgd_audit.face import show

show(__name__)
