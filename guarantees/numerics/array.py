"""The array type of all numerics."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
