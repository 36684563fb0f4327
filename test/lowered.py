"""Operations of the dialect `warp` printed and parsed again, and in kernels that are lowered to PTX."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence

from xdsl.dialects import arith, gpu, test
from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp, StringAttr, SymbolRefAttr, i32
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.printer import Printer

from warploom.dialect.isa.form import Form
from warploom.dialect.isa.row import ADDRESS, SCALAR, TARGETS, Target
from warploom.dialect.ptx.ops import ModuleOp as PtxModule
from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.warp.attributes import FragmentType, TargetAttr
from warploom.dialect.warp.fragments import fragment_bytes
from warploom.passes.to_ptx.kernel import ConvertWarpToPtxPass
from warploom.passes.universe import make_context, parse_mlir

INDEX = IndexType()


def reprinted(op: Operation, generic: bool) -> str:
    """The text of an operation after it was printed and parsed."""
    sources = list(dict.fromkeys(op.operands))
    placeholder = test.TestOp(result_types=[value.type for value in sources])
    for old, new in zip(sources, placeholder.results, strict=True):
        for i, operand in enumerate(op.operands):
            if operand is old:
                op.operands[i] = new
    module = ModuleOp([placeholder, op])
    first = text_of(module, generic)
    again = parse_mlir(make_context(), first)
    again.verify()
    assert text_of(again, generic) == first
    return first


def text_of(module: ModuleOp, generic: bool) -> str:
    out = io.StringIO()
    Printer(out, print_generic_format=generic).print_op(module)
    return out.getvalue()


def earliest(form: Form) -> Target:
    """The first target that has a form and can be compiled for."""
    return next(t for t in TARGETS.values() if form.runs_on(t) and t.sm >= 75)


Build = Callable[[Block, Sequence[SSAValue], SSAValue], None]


def lowered(target: Target, arguments: Sequence[MemRefType], build: Build) -> PtxModule:
    """What `convert-warp-to-ptx` makes of a kernel that `build` fills; it gets the arguments and the index 0."""
    body = Block(arg_types=arguments)
    zero = arith.ConstantOp.from_int_and_width(0, INDEX)
    body.add_op(zero)
    build(body, body.args, zero.result)
    body.add_op(gpu.ReturnOp([]))
    kernel = gpu.FuncOp("k", (list(arguments), []), Region(body), kernel=True, known_block_size=[32, 1, 1])
    kernels = gpu.ModuleOp(SymbolRefAttr("kernels"), Region(Block([kernel])))
    kernels.properties["sym_name"] = StringAttr("kernels")
    module = ModuleOp([kernels])
    module.attributes[TargetAttr.name] = TargetAttr(target)
    module.verify()
    ConvertWarpToPtxPass().apply(make_context(), module)
    module.verify()
    (printed,) = (op for op in module.walk() if isinstance(op, PtxModule))
    return printed


def instruction(module: PtxModule, spelling: str) -> str:
    """The one line of the text that has an instruction of this spelling."""
    (line,) = (text.strip() for text in print_ptx(module).splitlines() if text.strip().startswith(f"{spelling} "))
    return line


def pattern(form: Form, constants: dict[str, str] | None = None) -> str:
    """What the line of an instruction looks like, by the operands of its row."""
    parts: list[str] = []
    for operand in form.operands:
        letter = {"f32": "f", "f64": "d"}.get(operand.type, "r")
        if constants and operand.name in constants:
            parts.append(re.escape(constants[operand.name]))
        elif operand.kind == ADDRESS:
            parts.append(r"\[%rd?\d+(\+\d+)?\]")
        elif operand.kind == SCALAR:
            parts.append(rf"%{letter}\d+")
        else:
            parts.append(r"\{" + ", ".join([rf"%{letter}\d+"] * operand.count) + r"\}")
    return f"{re.escape(form.spelling)} {', '.join(parts)};"


def packed(kinds: Iterable[FragmentType]) -> list[MemRefType]:
    """Memory that holds each fragment as registers do."""
    return [MemRefType(i32, [1, fragment_bytes(kind) // 4]) for kind in kinds]


def lowered_text(text: str) -> str:
    """The PTX of a module's kernels, given as MLIR."""
    context = make_context()
    module = parse_mlir(context, text)
    module.verify()
    ConvertWarpToPtxPass().apply(context, module)
    (kernel,) = (op for op in module.walk() if isinstance(op, PtxModule))
    return print_ptx(kernel)
