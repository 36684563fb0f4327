"""The dialect `linalg` with all that the project reads."""

from xdsl.ir import Dialect

from .base import BASE
from .convolutions import CONVOLUTIONS

LINALG = Dialect("linalg", [*BASE.operations, *CONVOLUTIONS], [*BASE.attributes])
"""xDSL's `linalg` with our operations in place of its own, and our convolutions."""
