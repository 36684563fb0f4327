"""`python -m warploom.passes`: `warploom-opt`."""

import sys

from .start import main

if __name__ == "__main__":
    sys.exit(main())
