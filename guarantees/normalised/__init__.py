"""Rounds whose noisy sum is divided: EASGM, ASGM, FEASGM, exactly and in bounds.

Names are in the stub beside this file and are imported when first used.
"""

from dpsgd_audit.face import show

show(__name__)
