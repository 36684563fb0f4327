"""Judges all candidates of the set: no good one is refused, no bad one passes.

python test/judge/run.py [--only TEXT] [--every N]

Times are those of the processor, of which the first candidate of torch also has its import.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from judge.candidates import cases


def _seconds() -> float:
    """Time of the processor that this process and those of candidates have taken."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="those with this in their name")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with this one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chosen = [c for c in cases(Path(folder)) if args.only in c.name][args.first :: args.every]
        wrong, longest = 0, 0.0
        for case in chosen:
            start = _seconds()
            try:
                problem = case.problem()
            except Exception as error:
                problem = f"{case.name}: {type(error).__name__}: {error}"
            wrong += bool(problem)
            taken = _seconds() - start
            longest = max(longest, taken)
            print(f"{taken:5.1f} s  {problem or case.name}", flush=True)
        good = sum(not case.codes for case in chosen)
        print(f"{good} good and {len(chosen) - good} bad candidates, {wrong} judged wrongly, {longest:.1f} s at most")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
