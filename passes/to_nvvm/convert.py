"""`convert-warp-to-nvvm`: kernels as `llvm.func` with operations of `nvvm` and `llvm`, for upstream's tools.

    warploom-opt x.mlir -p warploom,convert-warp-to-nvvm |
        mlir-opt --gpu-module-to-binary=format=isa                        # PTX as LLVM writes it
    warploom-opt x.mlir -p "warploom,convert-warp-to-nvvm{bare=true}" |
        mlir-opt --convert-nvvm-to-llvm | mlir-translate --mlir-to-llvmir | llc -mcpu=sm_80 --nvptx-short-ptr

Each instruction becomes the operation of `nvvm` that stands for it, else operations of `llvm`, else inline PTX.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects import arith, gpu, llvm, memref
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    UnitAttr,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.target import Target

from ...dialect.mlir.gpu import ModuleOp as GpuModuleOp
from ...dialect.mlir.gpu_carried import HOST, BinaryOp, assembly
from ...dialect.mlir.llvm import DIRECTIVES
from ...dialect.mlir.nvvm_types import TARGET
from ...dialect.ptx import ops as ptx
from ...dialect.ptx.ops import FuncOp, print_ptx
from ...dialect.ptx.text.syntax import Variable, bits_of
from ...dialect.warp.attributes import ZEROED, is_memory
from ..diagnostics import fail, remark
from ..to_ptx.kernel import ConvertWarpToPtxPass
from .arithmetic import convert as to_llvm
from .blocks import Node, Registers, Splitter, flattened
from .instruction import LETTERS, POINTERS, SPACES, PtxInstruction, Symbols, declared_type, register_type
from .nvvm_operations import convert as to_nvvm


def convert(instruction: PtxInstruction) -> str:
    """Adds the operations for an instruction. Returns its opcode if that is inline PTX, "" otherwise."""
    if to_nvvm(instruction) or to_llvm(instruction):
        return ""
    instruction.inline()
    return instruction.opcode


def _parameter(variable: Variable) -> tuple[Attribute, dict[str, Attribute]]:
    """The type of a parameter, and its attributes: an array of bytes is passed by value, through a pointer."""
    if variable.count is not None:
        size = llvm.LLVMArrayType.new([*_array(variable)])
        align = IntegerAttr(variable.align or bits_of(variable.type) // 8, i64)
        return POINTERS[""], {"llvm.byval": size, "llvm.align": align, "nvvm.grid_constant": UnitAttr()}
    if ".global" in variable.pointer:
        align = variable.pointer.partition(".align ")[2]
        return POINTERS["global"], {"llvm.align": IntegerAttr(int(align), i64)} if align else {}
    if variable.type == "f32" or variable.type == "f64":
        return register_type(variable.type), {}
    return IntegerType(bits_of(variable.type)), {}


def _array(variable: Variable) -> tuple[Attribute, Attribute]:
    return IntAttr(variable.count or 0), IntegerType(bits_of(variable.type))


_ATTRIBUTES = {directive: name for name, directive in DIRECTIVES.items()}


def _attributes(function: FuncOp) -> dict[str, Attribute]:
    """What the directives of a kernel say, as attributes."""
    attributes: dict[str, Attribute] = {"gpu.kernel": UnitAttr(), "nvvm.kernel": UnitAttr()}
    for directive in function.directives:
        name, _, text = directive.data.partition(" ")
        if name == ".explicitcluster":
            continue
        if name not in _ATTRIBUTES:
            fail(function, f"there is nothing in nvvm for the directive '{directive.data}'")
        numbers = [int(word) for word in text.split(",")]
        single = name in (".minnctapersm", ".maxnreg", ".maxclusterrank")
        value = IntegerAttr(numbers[0], i32) if single else DenseArrayBase.from_list(i32, numbers)
        attributes[_ATTRIBUTES[name]] = value
    return attributes


_LETTERS = {register_type(type): LETTERS[n] for type, n in (("b32", 32), ("b64", 64), ("f32", "f32"), ("f64", "f64"))}
"""How inline PTX is told the type of a value."""


def _keep(block: Block) -> None:
    """Keeps values that later blocks alone read in the block that computes them: inline PTX without text reads them.
    LLVM moves them behind the jumps between otherwise (`MachineSink`). Addresses that this compiler computes before a
    wait then stand among the loads behind it, and ptxas has fewer of those in flight."""
    values = [
        value
        for op in block.ops
        if not isinstance(op, llvm.ConstantOp | llvm.UndefOp | llvm.AddressOfOp)
        for value in op.results
        if value.type in _LETTERS and all(use.operation.parent is not block for use in value.uses)
    ]
    if values and block.last_op is not None:
        letters = ",".join(_LETTERS[value.type] for value in values)
        Rewriter.insert_op(
            llvm.InlineAsmOp("", letters, values, [], has_side_effects=True), InsertPoint.before(block.last_op)
        )


class _Function:
    """The conversion of one kernel."""

    def __init__(self, function: FuncOp, variables: dict[str, Variable], inlined: Counter[str]) -> None:
        self.function = function
        self.inlined = inlined
        if function.entry is None or function.is_declaration:
            fail(function, "a function that is no kernel is not converted")
        self.nodes = Splitter(function).split()
        self.parameters = [(p.data, *_parameter(p.data)) for p in function.parameters]
        entry = self.nodes[0].block
        self.arguments = {p.name: entry.insert_arg(kind, i) for i, (p, kind, _) in enumerate(self.parameters)}
        arrays = {p.name for p, *_ in self.parameters if p.count is not None}
        self.symbols = Symbols({name: v.space for name, v in variables.items()}, self.arguments, arrays)
        self.registers = Registers(self.nodes, lambda value: register_type(declared_type(value)))
        self.instructions = {
            node: [PtxInstruction(op, node.block, self.registers, self.symbols) for op in node.instructions]
            for node in self.nodes
        }

    def convert(self) -> llvm.FuncOp:
        self.registers.fill(self._fill)
        for node in self.nodes:
            _keep(node.block)
        kinds = [kind for _, kind, _ in self.parameters]
        attributes = [DictionaryAttr(each) for *_, each in self.parameters]
        return llvm.FuncOp(
            self.function.sym_name.data,
            llvm.LLVMFunctionType(kinds),
            llvm.LinkageAttr("external"),
            body=Region([node.block for node in self.nodes]),
            other_props={"arg_attrs": ArrayAttr(attributes)} if any(each.data for each in attributes) else {},
            extra_attrs=_attributes(self.function),
        )

    def _fill(self, node: Node) -> None:
        for instruction in self.instructions[node]:
            if opcode := convert(instruction):
                self.inlined[opcode] += 1


def _global(op: ptx.VarOp) -> Operation:
    variable = op.variable
    if variable.init is not None:
        fail(op, f"'{variable.name}': a variable with initial values is not converted")
    single = variable.count is None
    kind = IntegerType(bits_of(variable.type)) if single else llvm.LLVMArrayType.new([*_array(variable)])
    linkage = "external" if variable.linking else "internal"
    return llvm.GlobalOp(kind, variable.name, linkage, SPACES[variable.space], alignment=variable.align)


def converted(module: ptx.ModuleOp) -> tuple[list[Operation], Counter[str]]:
    """The globals and functions of a module, and how often each instruction is inline PTX."""
    ops = list(flattened(module.body.block.ops))
    inside = [each for f in ops if isinstance(f, FuncOp) for each in flattened(f.body.block.ops)]
    declared = [op for op in (*ops, *inside) if isinstance(op, ptx.VarOp)]
    variables = {op.variable.name: op.variable for op in declared}
    inlined: Counter[str] = Counter()
    functions = [_Function(op, variables, inlined).convert() for op in ops if isinstance(op, FuncOp)]
    return [*map(_global, declared), *functions], inlined


_ASYNC = {op.name: op for op in HOST}


def _awaited(name: str, *operands: SSAValue | Sequence[SSAValue], results: Sequence[Attribute] = ()) -> list[Operation]:
    """An operation of the device in a stream of its own, for which the host waits: upstream lowers no other."""
    token = gpu.AsyncTokenType()
    begin = _ASYNC["gpu.wait"].build(operands=[[]], result_types=[[token]])
    op = _ASYNC[name].build(operands=[[begin.results[0]], *operands], result_types=[*results, [token]])
    return [begin, op, _ASYNC["gpu.wait"].build(operands=[[op.results[-1]]], result_types=[[]])]


def _is_scratch(memory: SSAValue) -> bool:
    """Whether nothing but launches use memory, or views of it."""
    users = [use.operation for use in memory.uses if not isinstance(use.operation, memref.DeallocOp)]
    views = [op for op in users if op.name.startswith("memref.") and [r for r in op.results if is_memory(r.type)]]
    launched = all(isinstance(op, gpu.LaunchFuncOp) for op in users if op not in views)
    return bool(users) and launched and all(_is_scratch(op.results[0]) for op in views)


def _to_device(alloc: memref.AllocOp) -> None:
    """Makes scratch memory memory of the device, zeroed where the launches want it."""
    made = _awaited("gpu.alloc", alloc.dynamic_sizes, [], results=[alloc.memref.type])
    memory = made[1].results[0]
    if ZEROED in alloc.attributes:
        zero = arith.ConstantOp(IntegerAttr(0, i32))
        made += [zero, *_awaited("gpu.memset", memory, zero.result)]
    Rewriter.replace_op(alloc, made, [memory])
    for use in list(memory.uses):
        if isinstance(use.operation, memref.DeallocOp):
            Rewriter.replace_op(use.operation, _awaited("gpu.dealloc", memory), [])


OLDEST = (8, 0)
"""The PTX version below which no module is made: LLVM lacks intrinsics there that this conversion uses."""


def _target(module: ptx.ModuleOp) -> Attribute:
    """The `#nvvm.target` of a module."""
    major, _, minor = module.version.data.partition(".")
    version = max(OLDEST, (int(major), int(minor)))
    chip = module.target.data.partition(",")[0]
    return TARGET.of('<chip = "{}", features = "+ptx{}{}">'.format(chip, *version))


@dataclass(frozen=True)
class ConvertWarpToNvvmPass(ModulePass):
    """Replaces every `ptx.module` by a `gpu.module` of the same name with an `llvm.func` for each kernel. With `bare`
    they alone stand in the module itself, as `mlir-translate --mlir-to-llvmir` wants them. With `binary` each becomes a
    `gpu.binary` with this compiler's own PTX, which the driver loads. A `gpu.module` that is left is converted to PTX
    first. `--remarks` says which instructions are inline PTX, because `nvvm` lacks them."""

    name = "convert-warp-to-nvvm"

    bare: bool = False
    binary: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if any(isinstance(each, gpu.ModuleOp) for each in op.body.block.ops):
            ConvertWarpToPtxPass().apply(ctx, op)
        for alloc in [each for each in op.walk() if isinstance(each, memref.AllocOp) and _is_scratch(each.memref)]:
            _to_device(alloc)
        modules = [each for each in op.body.block.ops if isinstance(each, ptx.ModuleOp)]
        for module in modules if self.binary else ():
            target = TARGET.of(f'<chip = "{module.target.data.partition(",")[0]}">')
            properties = {"sym_name": module.sym_name, "objects": ArrayAttr([assembly(target, print_ptx(module))])}
            Rewriter.replace_op(module, [BinaryOp.build(properties=properties)], [])
        for module in () if self.binary else modules:
            body, inlined = converted(module)
            if inlined:
                listed = ", ".join(f"{opcode} ({count})" for opcode, count in sorted(inlined.items()))
                remark(module, self.name, f"inline PTX: {listed}")
            if not self.bare:
                properties = {"sym_name": module.sym_name, "targets": ArrayAttr([_target(module)])}
                body = [GpuModuleOp.build(properties=properties, regions=[Region(Block(body))])]
            Rewriter.replace_op(module, body, [])
        for other in [each for each in op.body.block.ops if self.bare and not each.name.startswith("llvm.")]:
            Rewriter.erase_op(other)
        for name in [name for name in op.attributes if name.startswith("warp.")]:
            del op.attributes[name]


@dataclass(frozen=True)
class NvvmTarget(Target):
    """`-t nvvm`: prints the module as `convert-warp-to-nvvm` leaves it, for `mlir-opt`."""

    name = "nvvm"

    bare: bool = False
    binary: bool = False

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        made = module.clone()
        ConvertWarpToNvvmPass(self.bare, self.binary).apply(ctx, made)
        for op in list(made.ops):
            own = next((each for each in op.walk() if each.name.startswith("warp.")), None)
            if own is not None:
                remark(own, "convert-warp-to-nvvm", f"the host's part is left out: upstream has nothing for {own.name}")
                made.body.block.erase_op(op)
        Printer(output).print_op(made)
        output.write("\n")
