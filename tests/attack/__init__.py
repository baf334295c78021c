"""An attack on every curve that guarantees can make (draws over whole ranges, properties, oracles), and on records."""

import sys
from pathlib import Path

# `python -m attack.run` puts the folder tests first, whose folders are called like the packages
sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "audit")]
