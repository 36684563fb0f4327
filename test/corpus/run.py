"""Runs the corpus on the interpreter, with every check, and prints a table: `python test/corpus/run.py [NAME ...]`.

The compiled kernels are those of --folder where there are any (see cuda_ptx.py), else those that are committed. The
exit code is 1 if a case is wrong, makes a check report something, or is refused for another reason than its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpus.harness import verdicts
from corpus.store import ARCHIVE, OUT, Store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="sm_80,sm_90a,sm_100a")
    parser.add_argument("--folder", type=Path, default=OUT if OUT.exists() else ARCHIVE)
    parser.add_argument("--all", action="store_true", help="print those that are right, too")
    parser.add_argument("--whole", action="store_true", help="load whole modules, not a kernel at a time")
    parser.add_argument("names", nargs="*", help="sources or kernels; all, if none")
    args = parser.parse_args()
    failed = 0
    for target in args.target.split(","):
        counts: Counter[str] = Counter()
        start = time.perf_counter()
        for verdict in verdicts(Store(args.folder), target, tuple(args.names), args.whole):
            took, start = time.perf_counter() - start, time.perf_counter()
            counts[verdict.kind] += 1
            failed += not verdict.expected
            if args.all or verdict.kind != "right":
                print(f"{took:6.2f} s  {verdict}", flush=True)
        total = ", ".join(f"{n} {kind}" for kind, n in counts.items())
        print(f"{target}: {sum(counts.values())} kernels: {total}", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
