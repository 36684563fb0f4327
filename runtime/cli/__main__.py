"""`python -m warploom.runtime.cli`: the `warploom` command."""

import sys

from .start import main

sys.exit(main())
