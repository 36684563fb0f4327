"""`python -m warploom.runtime.cli`: the `warploom` command."""

import sys

from .command import main

sys.exit(main())
