"""Operations of `llvm` and `nvvm` as instructions of PTX."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from xdsl.dialects import gpu, llvm
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, IntegerType, VectorType, f32, i1, i8, i16, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.hints import isa

from ...dialect.isa.row import Target
from ...dialect.mlir.llvm import ARITHMETIC, FUNCTIONS
from ...dialect.mlir.upstream import NvvmOp
from ...dialect.ptx import ops as ptx
from ...dialect.ptx.text.syntax import Immediate, Symbol
from ..diagnostics import fail
from . import llvm_kernel
from .emitter import At, VirtualRegister, floating
from .llvm_kernel import LlvmKernel, Words, bits_of, literal, resized, space_of, types_of, variable

HandlerT = TypeVar("HandlerT", bound=Callable[[LlvmKernel, Any], None])

_OPERATIONS: dict[str, Callable[[LlvmKernel, Any], None]] = {}
"""What lowers operations, by their names."""


def _lowers(*kinds: type[Operation]) -> Callable[[HandlerT], HandlerT]:
    """Registers a function as what lowers operations of these types."""

    def register(handle: HandlerT) -> HandlerT:
        _OPERATIONS.update({kind.name: handle for kind in kinds})
        return handle

    return register


def lower(kernel: LlvmKernel, op: Operation) -> None:
    """Adds the instructions of an operation."""
    if isinstance(op, NvvmOp):
        return llvm_kernel.lower_nvvm(kernel, op)
    make = _OPERATIONS.get(op.name)
    if make is None:
        fail(op, f"{op.name} is not lowered to PTX inside a kernel")
    make(kernel, op)


# Jumps.


@_lowers(llvm.BrOp)
def _branch(kernel: LlvmKernel, op: llvm.BrOp) -> None:
    kernel.jump(op.successor, op.operands, kernel.following)


@_lowers(llvm.CondBrOp)
def _conditional(kernel: LlvmKernel, op: llvm.CondBrOp) -> None:
    condition = kernel.register(op.cond)
    taken, passed = op.then_block, list(op.then_arguments)
    if passed:
        edge = kernel.emitter.fresh_label(f"{kernel.labels[op.then_block]}_from")
        kernel.emitter.branch(edge, guard=condition)
        kernel.jump(op.else_block, list(op.else_arguments), None)
        kernel.emitter.label(edge)
        kernel.jump(taken, passed, kernel.following)
    else:
        kernel.emitter.branch(kernel.labels[taken], guard=condition)
        kernel.jump(op.else_block, list(op.else_arguments), kernel.following)


@_lowers(llvm.ReturnOp)
def _return(kernel: LlvmKernel, _: Operation) -> None:
    kernel.emit("ret")


# Arithmetic: an instruction by the name of the operation and the type of its result.


def _arithmetic(kernel: LlvmKernel, op: Operation) -> None:
    kind = op.results[0].type
    name, _, letter = ARITHMETIC[op.name.removeprefix("llvm.")].rpartition(".")
    operands: Words = _widened(kernel, op, letter)
    if kind == i1:
        operands = [kernel.register(value) for value in op.operands]
    if name in ("shl", "shr"):
        if isa(kind, VectorType[Attribute]):
            fail(op, f"{op.name} of {kind} is not lowered")
        amount = op.operands[1]
        by = operands[1]
        operands[1] = (
            resized(kernel, by, amount.type, i32)
            if isinstance(by, VirtualRegister)
            else Immediate(str(int(by.text) % (1 << 32)))
        )
    type = "pred" if kind == i1 else _type_in_opcode(op, letter, kind)
    kernel.give(op, kernel.compute(f"{name}.{type}", kind, *operands))


def _type_in_opcode(op: Operation, letter: str, kind: Attribute) -> str:
    """How an opcode spells the type of its numbers: floats by their names, pairs of halves, integers by their bits."""
    element, pair = (kind.element_type, "x2") if isa(kind, VectorType[Attribute]) else (kind, "")
    if pair and (bits_of(kind) != 32 or (letter != "b" and str(element) not in ("f16", "bf16"))):
        fail(op, f"{op.name} of {kind} is not lowered")
    return f"{element}{pair}" if letter == "f" else f"{letter.replace('i', 's')}{max(16, bits_of(kind))}"


def _widened(kernel: LlvmKernel, op: Operation, letter: str) -> Words:
    """The operands of an operation on numbers; of 8 bits, which PTX does not compute with, extended to 16."""
    return [
        _extended(kernel, value, i16, letter != "u") if value.type == i8 else kernel.word(value)
        for value in op.operands
    ]


def _extended(kernel: LlvmKernel, value: SSAValue, kind: Attribute, signed: bool) -> VirtualRegister | Immediate:
    """An integer, or a literal, of more or fewer bits."""
    word, have = kernel.word(value), 1 << bits_of(value.type)
    if isinstance(word, VirtualRegister):
        return resized(kernel, word, value.type, kind, signed)
    number = int(word.text) % have
    return Immediate(str((number - have if signed and number >= have // 2 else number) % (1 << bits_of(kind))))


def _funnel(kernel: LlvmKernel, op: Operation) -> None:
    high, low, amount = (kernel.word(value) for value in op.operands)
    direction = "r" if op.name.endswith("r") else "l"
    kernel.give(op, kernel.compute(f"shf.{direction}.wrap.b32", i32, low, high, amount))


@_lowers(llvm.ICmpOp, llvm.FCmpOp)
def _compare(kernel: LlvmKernel, op: llvm.ICmpOp | llvm.FCmpOp) -> None:
    number = op.predicate.value.data
    if isinstance(op, llvm.ICmpOp):
        word = str(llvm.ICmpPredicateFlag.from_int(number))
        sign, word = ("s", word) if word in ("eq", "ne") else (word[0], word[1:])
    else:
        ordered, word = (flag := str(llvm.FCmpPredicateFlag.from_int(number)))[0], flag[1:]
        sign, word = "f", {"ord": "num", "uno": "nan"}.get(flag, word if ordered == "o" else f"{word}u")
    operands = _widened(kernel, op, sign)
    kernel.give(op, kernel.compute(f"setp.{word}.{_type_in_opcode(op, sign, op.lhs.type)}", i1, *operands))


def _select(kernel: LlvmKernel, op: Operation) -> None:
    condition, first, second = op.operands
    predicate, kind = kernel.register(condition), op.results[0].type
    if kind == i1:
        result = kernel.compute(
            "selp.b32", i32, *(resized(kernel, kernel.register(v), i1, i32) for v in (first, second)), predicate
        )
        return kernel.give(op, kernel.compute("setp.ne.s32", i1, result, 0))
    pairs = zip(types_of(kind), kernel.words(first), kernel.words(second), strict=True)
    made: Words = []
    for type, a, b in pairs:
        made.append(kernel.emitter.compute(f"selp.{type}", a, b, predicate))
    kernel.give(op, *made)


# Constants, conversions, addresses.


@_lowers(llvm.ConstantOp)
def _constant(kernel: LlvmKernel, op: llvm.ConstantOp) -> None:
    if not isa(op.value, IntegerAttr | FloatAttr):
        fail(op, f"expected a number, got {op.value}")
    number, kind = literal(op.value, op.result.type), op.result.type
    is_half = isinstance(kind, AnyFloat) and bits_of(kind) == 16  # of which PTX has no literals
    kernel.give(op, kernel.compute("mov.b16", kind, number) if is_half else number)


def _undefined(kernel: LlvmKernel, op: Operation) -> None:
    """Undefined values are zero."""
    zeros = {"f32": floating(0), "f64": floating(0, 64)}
    kernel.give(op, *(zeros.get(type, Immediate("0")) for type in types_of(op.results[0].type)))


def _resize(kernel: LlvmKernel, op: Operation) -> None:
    (source,), kind = op.operands, op.results[0].type
    kernel.give(op, _extended(kernel, source, kind, op.name == "llvm.sext"))


def _bitcast(kernel: LlvmKernel, op: Operation) -> None:
    (source,), kind = op.operands, op.results[0].type
    words, types = kernel.words(source), types_of(kind)
    if len(words) == len(types):
        if all(isinstance(w, VirtualRegister) and w.type == type for w, type in zip(words, types, strict=True)):
            return kernel.give(op, *words)
        made = kernel.fresh(kind)
        for register, word in zip(made, words, strict=True):
            bits = word if isinstance(word, VirtualRegister) else Immediate(re.sub(r"^0[fd]", "0x", word.text))
            kernel.emit(f"mov.b{register.type[1:]}", register, bits)
        return kernel.give(op, *made)
    made = kernel.fresh(kind)
    parts = (made, words[0]) if len(made) > 1 else (made[0], kernel.registers(source))
    kernel.emit(f"mov.b{bits_of(kind)}", *parts)
    kernel.give(op, *made)


def _to_space(kernel: LlvmKernel, op: Operation) -> None:
    """Generic addresses are of 64 bits, those of shared memory of 32."""
    (source,), kind = op.operands, op.results[0].type
    have, want, register = space_of(source.type), space_of(kind), kernel.register(source)
    if have and want:
        return kernel.give(op, register)
    if have:
        wide = resized(kernel, register, source.type, i64)
        return kernel.give(op, kernel.compute(f"cvta.{have}.u64", i64, wide))
    address = kernel.compute(f"cvta.to.{want}.u64", i64, register)
    kernel.give(op, resized(kernel, address, i64, kind))


@_lowers(llvm.AddressOfOp)
def _address_of(kernel: LlvmKernel, op: llvm.AddressOfOp) -> None:
    name, kind = op.global_name.root_reference.data, op.results[0].type
    if name not in kernel.symbols:
        fail(op, f"there is no variable '{name}' in the module")
    kernel.give(op, kernel.compute(f"mov.b{bits_of(kind)}", kind, Symbol(name)))


def _size(kind: Attribute) -> int:
    """Bytes of a type in memory."""
    if isinstance(kind, llvm.LLVMArrayType):
        return kind.size.data * _size(kind.type)
    return bits_of(kind) // 8


@_lowers(llvm.GEPOp)
def _element_pointer(kernel: LlvmKernel, op: llvm.GEPOp) -> None:
    kind, place, dynamic = op.elem_type, kernel.register(op.ptr), iter(op.ssa_indices)
    pointer = op.ptr.type
    for i, index in enumerate(op.rawConstantIndices.get_values()):
        if i:
            if not isinstance(kind, llvm.LLVMArrayType):
                fail(op, f"an index into {kind} is not lowered")
            kind = kind.type
        size, bits = _size(kind), bits_of(pointer)
        if not size:
            fail(op, f"the size of {kind} is not known")
        if index != llvm.GEP_USE_SSA_VAL:
            step: VirtualRegister | int = index * size
        else:
            value = next(dynamic)
            wide = resized(kernel, kernel.register(value), value.type, IntegerType(bits), signed=True)
            step = kernel.compute(f"mul.lo.s{bits}", pointer, wide, size)
        if step != 0:
            place = kernel.compute(f"add.s{bits}", pointer, place, step)
    kernel.give(op, place)


_FLOAT_CASTS = {"fpext": "", "fptrunc": ".rn", "sitofp": ".rn", "uitofp": ".rn", "fptosi": ".rzi", "fptoui": ".rzi"}


def _float_cast(kernel: LlvmKernel, op: Operation) -> None:
    name, (source,), kind = op.name.removeprefix("llvm."), op.operands, op.results[0].type
    if source.type == i1 and isinstance(kind, AnyFloat):
        one, zero = (literal(FloatAttr(x, kind), kind) for x in (-1.0 if name == "sitofp" else 1.0, 0.0))
        return kernel.give(op, kernel.emitter.compute(f"selp.{types_of(kind)[0]}", one, zero, kernel.register(source)))
    letter, word = "u" if "ui" in name else "s", kernel.word(source)
    to, of = (f"{letter}{text[1:]}" if (text := str(each))[0] == "i" else text for each in (kind, source.type))
    if of == "bf16" and isinstance(word, VirtualRegister):  # the upper half of the f32
        wide = kernel.emitter.compute("shl.b32", kernel.emitter.compute("cvt.u32.u16", word), 16)
        of, word = "f32", kernel.compute("mov.b32", f32, wide)
    elif to == "bf16" and of in ("s8", "s16", "u8", "u16"):
        of, word = "f32", kernel.compute(f"cvt.rn.f32.{of}", f32, word)
    done = (of, to) == ("f32", "f32")
    kernel.give(op, word if done else kernel.compute(f"cvt{_FLOAT_CASTS[name]}.{to}.{of}", kind, word))


# Memory.


_ORDERINGS = {0: "", 2: ".relaxed.sys", 4: ".acquire.sys", 5: ".release.sys"}
"""How accesses are ordered, by the numbers of LLVM: not at all, monotonic, acquire, release."""


def _access(
    kernel: LlvmKernel, op: llvm.LoadOp | llvm.StoreOp, kind: Attribute, pointer: SSAValue
) -> tuple[str, list[str]]:
    """How an access is spelled behind `ld` or `st`, and the types of its registers."""
    if (order := _ORDERINGS.get(0 if op.ordering is None else op.ordering.value.data)) is None:
        fail(op, f"{op.name} is lowered as monotonic, acquire or release, and not atomic")
    types, space = types_of(kind), space_of(pointer.type)
    if not types or "pred" in types or len(types) not in (1, 2, 4):
        fail(op, f"{op.name} of {kind} is not lowered")
    unit = "b8" if bits_of(kind) == 8 else types[0]
    vector = f".v{len(types)}" if len(types) > 1 else ""
    return f"{order}{f'.{space}' if space else ''}{vector}.{unit}", types


@_lowers(llvm.LoadOp)
def _load(kernel: LlvmKernel, op: llvm.LoadOp) -> None:
    text, types = _access(kernel, op, op.dereferenced_value.type, op.ptr)
    made = kernel.emitter.registers(types[0], len(types))
    kernel.emit(f"ld{text}", made if len(made) > 1 else made[0], At(kernel.register(op.ptr)))
    kernel.give(op, *made)


@_lowers(llvm.StoreOp)
def _store(kernel: LlvmKernel, op: llvm.StoreOp) -> None:
    text, types = _access(kernel, op, op.value.type, op.ptr)
    words = kernel.registers(op.value)
    kernel.emit(f"st{text}", At(kernel.register(op.ptr)), words if len(types) > 1 else words[0])


# Structs and vectors.


@_lowers(llvm.ExtractValueOp)
def _extract(kernel: LlvmKernel, op: llvm.ExtractValueOp) -> None:
    first, count = _part(op.container.type, op.position.get_values())
    kernel.give(op, *kernel.words(op.container)[first : first + count])


@_lowers(llvm.InsertValueOp)
def _insert(kernel: LlvmKernel, op: llvm.InsertValueOp) -> None:
    first, count = _part(op.container.type, op.position.get_values())
    words = list(kernel.words(op.container))
    words[first : first + count] = kernel.words(op.value)
    kernel.give(op, *words)


def _part(kind: Any, position: tuple[int, ...]) -> tuple[int, int]:
    """The first register of a part of a struct or an array, and how many it has."""
    first = 0
    for at in position:
        array = isinstance(kind, llvm.LLVMArrayType)
        parts: list[Attribute] = [kind.type] * kind.size.data if array else [*kind.types]
        first, kind = first + sum(len(types_of(part)) for part in parts[:at]), parts[at]
    return first, len(types_of(kind))


@_lowers(llvm.ShuffleVectorOp)
def _shuffle(kernel: LlvmKernel, op: llvm.ShuffleVectorOp) -> None:
    """Elements of two vectors, as many of each side by side as a register has."""
    words, mask = [*kernel.words(op.v1), *kernel.words(op.v2)], op.mask.get_values()
    each = max(1, len(mask) // len(types_of(op.res.type)))
    runs = [mask[at : at + each] for at in range(0, len(mask), each)]
    if any(run[0] % each or run != tuple(range(run[0], run[0] + each)) for run in runs):
        fail(op, f"{op.name} is lowered for elements that fill registers together, got {list(mask)} of {op.v1.type}")
    kernel.give(op, *(words[run[0] // each] for run in runs))


def _element(kernel: LlvmKernel, op: Operation) -> None:
    """Extracts or inserts an element of a vector at a constant place."""
    extract = op.name == "llvm.extractelement"
    vector, place = (op.operands[0], op.operands[1]) if extract else (op.operands[0], op.operands[2])
    index, kind = kernel.word(place), vector.type
    if not isinstance(index, Immediate) or not isa(kind, VectorType[Attribute]) or bits_of(kind.element_type) < 16:
        fail(op, f"{op.name} is lowered at places that are known, of numbers of 16 bits or more")
    words, number, size = list(kernel.words(vector)), int(index.text), bits_of(kind.element_type)
    if size >= 32:
        if extract:
            return kernel.give(op, words[number])
        words[number] = kernel.word(op.operands[1])
        return kernel.give(op, *words)
    halves = kernel.emitter.registers("b16", 2)
    kernel.emit("mov.b32", halves, words[number // 2])
    if extract:
        return kernel.give(op, halves[number % 2])
    halves[number % 2] = kernel.register(op.operands[1])
    words[number // 2] = kernel.compute("mov.b32", i32, halves)
    kernel.give(op, *words)


# Functions of LLVM for PTX, and inline PTX.


@_lowers(llvm.CallIntrinsicOp)
def _intrinsic(kernel: LlvmKernel, op: llvm.CallIntrinsicOp) -> None:
    opcode = FUNCTIONS.get(op.intrin.data)
    if opcode is None:
        fail(op, f"the intrinsic {op.intrin.data} is not lowered")
    kernel.give(op, kernel.compute(opcode, op.results[0].type, *(kernel.word(value) for value in op.args)))


@_lowers(llvm.InlineAsmOp)
def _inline(kernel: LlvmKernel, op: llvm.InlineAsmOp) -> None:
    """One instruction of inline PTX on the registers of the operation; none, which keeps values where they are."""
    if op.res is None and not op.asm_string.data.strip():
        return
    match = re.fullmatch(r"\s*([a-z][\w.:]*)(?:\s+([^;]*))?;\s*", op.asm_string.data)
    if match is None:
        fail(op, "inline PTX is lowered where it is one instruction")
    results = [] if op.res is None else kernel.fresh(op.res.type)
    words = [*results]
    tied = [int(c) for c in op.constraints.data.split(",") if c.isdigit()]
    inputs = [kernel.register(value) for value in op.operands_]
    for place, register in zip(tied, inputs, strict=False):
        words[place] = results[place] = register
    words += inputs
    registers: list[VirtualRegister] = []

    def number(match: re.Match[str]) -> str:
        if int(match[1]) >= len(words):
            fail(op, f"inline PTX names ${match[1]}, and there are {len(words)} registers")
        registers.append(words[int(match[1])])
        return "?"

    form = re.sub(r"\$(\d+)", number, match[2] or "")
    kernel.emitter.emit_form(match[1], form.strip(), registers)
    if op.res is not None:
        kernel.give(op, *results)


_OPERATIONS.update({
    **{f"llvm.{name}": _arithmetic for name in ARITHMETIC},
    **{f"llvm.{name}": _resize for name in ("trunc", "zext", "sext", "ptrtoint", "inttoptr")},
    **{f"llvm.{name}": _float_cast for name in _FLOAT_CASTS},
    **{f"llvm.mlir.{name}": _undefined for name in ("undef", "poison", "zero")},
    "llvm.intr.fshr": _funnel, "llvm.intr.fshl": _funnel, "llvm.select": _select, "llvm.bitcast": _bitcast,
    "llvm.addrspacecast": _to_space, "llvm.extractelement": _element, "llvm.insertelement": _element,
})  # fmt: skip


def of_module(module: gpu.ModuleOp, target: Target) -> ptx.ModuleOp:
    """Converts a module of `llvm.func` to PTX; all its functions are kernels."""
    ops = list(module.body.block.ops)
    variables = [variable(op) for op in ops if isinstance(op, llvm.GlobalOp)]
    spaces = {each.name: each.space for each in variables}
    functions, version = list[Operation](), target.ptx
    for op in ops:
        if isinstance(op, llvm.GlobalOp):
            continue
        if not isinstance(op, llvm.FuncOp) or "nvvm.kernel" not in op.attributes or not op.body.blocks:
            fail(op, f"expected kernels, llvm.func with nvvm.kernel, got {op.name}")
        function, needed = LlvmKernel(op, target, spaces).lower(lower)
        functions.append(function)
        version = max(version, needed)
    body = [*map(ptx.VarOp, variables), *functions]
    return ptx.ModuleOp(module.sym_name.data, body, version="{}.{}".format(*version), target=target.name)
