"""Shapes of vectors, shared by those who make them and those who store them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""Shape (d,), unit length."""
Matrix = NDArray[np.float32]
"""Shape (n, d), rows of unit length."""
