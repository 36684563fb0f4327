"""Lines of MLIR in PTX: `.loc` and `.file` for the locations of operations. PTX ISA 11.5.3 and 11.5.4."""

from __future__ import annotations

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Block

from ..mlir.locations import line_of
from . import ops as ptx
from .instruction import InstOp


def add_lines(module: ptx.ModuleOp) -> None:
    """Puts a `.loc` before each instruction whose line is not that of the one before it, and a `.file` for each file.
    An instruction without a line has that of its function."""
    files: dict[str, int] = {}
    for function in module.body.block.ops:
        if isinstance(function, ptx.FuncOp) and not function.is_declaration:
            _add(function.body.block, line_of(function.location), files, "")
    for file, number in files.items():
        module.body.block.add_op(ptx.DirectiveOp(f'.file {number} "{file}"'))


def _add(block: Block, whole: FileLineColLoc | None, files: dict[str, int], last: str) -> str:
    """The same for a block of a function at a line; returns the `.loc` that holds behind it."""
    for op in list(block.ops):
        if isinstance(op, ptx.ScopeOp):
            last = _add(op.body.block, whole, files, last)
        elif isinstance(op, InstOp) and (line := line_of(op.location) or whole) is not None:
            number = files.setdefault(line.filename.data, len(files) + 1)
            text = f".loc {number} {line.line.data} {line.column.data}"
            if text != last:
                block.insert_op_before(ptx.DirectiveOp(text), op)
            last = text
    return last
