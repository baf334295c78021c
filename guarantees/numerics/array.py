"""The one array type of the numerics."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
