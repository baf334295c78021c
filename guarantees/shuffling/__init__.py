"""Shuffled epochs and other batch samplers: exact curves, bounds and asymptotics.

Names are in the stub beside this file and are imported when first used.
"""

from dpsgd_audit.face import show

show(__name__)
