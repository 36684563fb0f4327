"""TVM's public layouts of tensor memory, place by place: whether ours are the same.

    python test/conformance/tvm_layouts.py [--source TVM]

`--source` is a checkout of apache/tvm or a git directory of one; without it TVM is cloned from GitHub. Of its file of
layouts the functions for results (PTX ISA 9.7.16.10.5) and for loads (9.7.16.8.1) are executed, with stand-ins for the
rest of TVM. The exit status is 1 if a place differs.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from llvm_suite import BUILD, clone, extract
from tvm_table import REPOSITORY
from verdicts import UnavailableError

from warploom.dialect.layouts.tensor_memory import MOVES, result

FOLDER = "python/tvm/tirx"
FUNCTIONS = ("tmem_datapath_layout", "tcgen05_atom_layout")
DATAPATHS = {
    "A": (256, 2, False, False), "B": (128, 2, False, False), "C": (128, 2, False, True), "D": (128, 1, False, False),
    "E": (64, 1, True, False), "F": (64, 1, False, False), "G": (32, 1, True, False),
}  # fmt: skip
"""M, CTAs of a group, whether `.ws`, and whether A is sparse, by the letter of the text."""
COLUMNS = 64


class _Strided(NamedTuple):
    extent: int
    stride: int
    axis: str


class _Axis(str):
    __slots__ = ()

    def __rmatmul__(self, stride: int) -> tuple[int, str]:
        return stride, str(self)


class _Layout(NamedTuple):
    """Extents, the first the slowest, each with a stride along an axis of the destination."""

    iters: Sequence[_Strided]

    def place(self, number: int) -> Counter[str]:
        at = Counter[str]()
        for extent, stride, axis in reversed(self.iters):
            number, index = divmod(number, extent)
            at[axis] += stride * index
        return at


class _Spec:
    def __getitem__(self, how: Any) -> list[_Strided]:
        return [_Strided(extent, *stride) for extent, stride in zip(how.start, how.stop, strict=True)]


def functions(source: Path | None) -> dict[str, Any]:
    """TVM's functions by name.

    Raises:
        UnavailableError: if its file is not at `source`, or cannot be cloned.
    """
    if source is None:
        folder = clone(REPOSITORY, FOLDER, BUILD / "tvm-layouts")
    else:
        folder = source / FOLDER if (source / FOLDER).exists() else extract(source, FOLDER, BUILD / "tvm")
    tree = ast.parse((folder / "layout.py").read_text())
    kept: list[ast.stmt] = [
        node
        for node in tree.body
        if (isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith(("_TMEM", "_TCGEN05")))
    ]
    axes = {name: _Axis(name) for name in ("laneid", "wid_in_wg", "tid_in_wg")}
    layout = type("TileLayout", (), {"__new__": lambda _, spec: _Layout(spec),
                                     "from_iters": staticmethod(lambda iters, _, __: _Layout(iters))})  # fmt: skip
    kind = SimpleNamespace(DataType=lambda _: SimpleNamespace(bits=32))
    scope: dict[str, Any] = {
        "Axis": SimpleNamespace(get=_Axis, **axes), "S": _Spec(), "Iter": _Strided, "TileLayout": layout,
        "tvm": SimpleNamespace(runtime=kind),
    }  # fmt: skip
    exec(compile(ast.Module(kept, []), "layout.py", "exec"), scope)
    return {name: scope[name] for name in FUNCTIONS}


def results(datapath: Any) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Of each element of a result: what it is called, its lane and column for TVM, and for us."""
    for letter, (m, group, stationary, sparse) in DATAPATHS.items():
        ours, rows = result(m, group, stationary, sparse), m // group
        parts = ours.extent("p")
        theirs, each = datapath(letter, rows, COLUMNS), COLUMNS // parts
        for row in range(rows):
            for column in range(COLUMNS):
                at = theirs.place(row * COLUMNS + column)
                part, within = divmod(column, each)
                lane, element = ours.find(r=row, c=within % ours.extent("c"), p=part)
                mine = lane, element + within // ours.extent("c") * ours.elements
                yield f"{letter} ({row}, {column})", (at["TLane"], at["TCol"]), mine


def loads(atom: Any) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Of each element that a warpgroup loads: what it is called, its thread and register for TVM, and for us."""
    for shape, rows in (("32x32b", 128), ("16x64b", 64), ("16x128b", 64), ("16x256b", 64)):
        ours = MOVES[shape]
        wide, high = ours.extent("c"), rows // 4
        columns = 4 * wide
        theirs = atom(shape, (rows, columns), "float32")
        for row in range(rows):
            for column in range(columns):
                at = theirs.place(row * columns + column)
                thread = at["tid_in_wg"] + at["laneid"] + 32 * at["wid_in_wg"]
                lane, register = ours.find(r=row % high, c=column % wide)
                mine = lane + 32 * (row // high), register + column // wide * ours.elements
                yield f"{shape} ({row}, {column})", (thread, at["m"]), mine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path)
    options = parser.parse_args()
    try:
        layouts = functions(options.source)
    except UnavailableError as error:
        raise SystemExit(f"not judged: {error}") from error
    places, wrong = Counter[str](), Counter[str]()
    for name, theirs, ours in (*results(layouts["tmem_datapath_layout"]), *loads(layouts["tcgen05_atom_layout"])):
        kind = name.partition(" ")[0]
        places[kind] += 1
        if theirs != ours:
            wrong[kind] += 1
            if wrong[kind] == 1:
                print(f"{name}: TVM has {theirs}, ours has {ours}")
    for kind, count in places.items():
        print(f"{kind}: {count} places, {wrong[kind]} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
