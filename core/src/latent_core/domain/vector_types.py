"""The types of vectors. Apart from chunks, since clients know those and need no numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""Shape (d,), unit length."""
Matrix = NDArray[np.float32]
"""Shape (n, d), rows of unit length."""
