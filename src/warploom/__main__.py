"""`python -m warploom`: the `warploom` command."""

import sys

from warploom.runtime.cli import main

if __name__ == "__main__":
    sys.exit(main())
