"""Every spelling of TVM's public table of PTX (`T.ptx`): whether our rows have it.

    python test/conformance/tvm_table.py [--source TVM] [--all]

`--source` is a checkout of apache/tvm or a git directory of one; without it TVM is cloned from GitHub. The exit status
is 1 if a spelling is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llvm_suite import BUILD, clone, extract
from verdicts import UnavailableError

from warploom.dialect.ptx.instructions import find

REPOSITORY = "https://github.com/apache/tvm"
FOLDER = "python/tvm/backend/cuda/ptx"
MAX = 20000
"""Combinations of one entry that are tried; of an entry with more, a sample."""


def table(source: Path | None) -> dict[str, Any]:
    """TVM's entries by name; the file needs nothing of TVM.

    Raises:
        UnavailableError: if it is not at `source`, or cannot be cloned.
    """
    if source is None:
        folder = clone(REPOSITORY, FOLDER, BUILD / "tvm-clone")
    elif (source / FOLDER).exists():
        folder = source / FOLDER
    elif (source / "HEAD").exists():
        folder = extract(source, FOLDER, BUILD / "tvm")
    else:
        raise UnavailableError(f"{source} is neither a checkout of TVM nor a git directory of one")
    spec = importlib.util.spec_from_file_location("tvm_ptx_table", folder / "table.py")
    if spec is None or spec.loader is None:
        raise UnavailableError(f"{folder / 'table.py'} cannot be read")
    module = importlib.util.module_from_spec(spec)
    sys.modules["tvm_ptx_table"] = module
    spec.loader.exec_module(module)
    return module.TABLE


def spellings(entry: Any) -> Iterator[str]:
    """The opcodes of an entry: its name and the words of its slots that its check lets pass."""
    axes = [(*slot.choices, "") if slot.optional else slot.choices for slot in entry.slots]
    size = 1
    for axis in axes:
        size *= len(axis)
    draw = random.Random(entry.name)
    every = itertools.product(*axes)
    combinations = every if size <= MAX else ([draw.choice(axis) for axis in axes] for _ in range(MAX))
    for words in combinations:
        names = {slot.name: word for slot, word in zip(entry.slots, words, strict=True)}
        if entry.check is None or not entry.check(names):
            yield ".".join((entry.mnemonic or entry.name, *(word for word in words if word)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--all", action="store_true", help="print every spelling that is missing")
    options = parser.parse_args()
    try:
        entries = table(options.source)
    except UnavailableError as error:
        raise SystemExit(f"not judged: {error}") from error
    tried, missing = 0, Counter[str]()
    for name, entry in entries.items():
        lacking = [s for s in dict.fromkeys(spellings(entry)) if (tried := tried + 1) and not find(s)]
        missing[name] = len(lacking)
        for spelling in lacking if options.all else lacking[:3]:
            print(f"{name}: {spelling}")
    print(f"{len(entries)} entries, {tried} spellings, {missing.total()} missing")
    raise SystemExit(bool(missing.total()))


if __name__ == "__main__":
    main()
