"""Checks every compiled PTX file as `warploom check` does: whoever compiled it, ptxas takes it, so nothing may be said.

`python test/corpus/check.py [--folder FOLDER] [NAME ...]`; the exit code is 1 if anything was said.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpus.store import ARCHIVE, OUT, Store

from warploom.runtime import check_ptx


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=OUT if OUT.exists() else ARCHIVE)
    parser.add_argument("names", nargs="*", help="files whose names begin so; all, if none")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    said, lines = 0, 0
    texts = {n: t for n, t in sorted(Store(args.folder).texts.items()) if n.startswith(tuple(args.names) or "")}
    for name, text in texts.items():
        lines += text.count("\n")
        for diagnostic in check_ptx(text, name=name):
            said += 1
            if counts[diagnostic.message] == 0:
                print(f"{name}:{diagnostic.line}:{diagnostic.column}: {diagnostic.message}", flush=True)
            counts[diagnostic.message] += 1
    print(f"{len(texts)} files, {lines} lines: {said} diagnostics of {len(counts)} kinds")
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
