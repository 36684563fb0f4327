"""Arithmetic, comparisons, moves, conversions, loads and stores of PTX as operations of `llvm`. Each function gives the
result of its instruction; one that LLVM has no operation for is left for inline PTX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects import llvm
from xdsl.dialects.builtin import IntegerAttr, IntegerType, VectorType, i1, i64
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialect.mlir.llvm import ARITHMETIC, CASTS, FUNCTIONS, INTRINSICS, LLVM
from ...dialect.ptx.text.syntax import Address, Immediate, Operand, Register, Symbol, Vector, bits_of, operand_text
from ..diagnostics import fail
from .instruction import FLOATS, PtxInstruction, register_type, value_type, width

Converter = Callable[[PtxInstruction], Operation | SSAValue | bool]
"""Gives the value of the first operand, or the operation of which it is the result; True where it has written all that
the instruction writes, False if there is nothing in LLVM."""

CONVERTERS: dict[str, Converter] = {}
"""By the first word of an opcode."""


def converts(*roots: str) -> Callable[[Converter], Converter]:
    """A decorator that registers a converter for opcodes with these roots."""

    def register(convert: Converter) -> Converter:
        for root in roots:
            CONVERTERS[root] = convert
        return convert

    return register


_FUNCTIONS = {opcode: name for name, opcode in FUNCTIONS.items() if not name.startswith("llvm.nvvm.rcp.rn")}
# LLVM moves its own `rcp.rn` far up, so that more registers live at once: 212 for 167 in a layer norm.


def convert(of: PtxInstruction) -> bool:
    """Adds the operations of `llvm`, or the call of its function, for an instruction. Returns False if there are
    none."""
    made = CONVERTERS[of.words[0]](of) if of.words[0] in CONVERTERS else False
    if made is False and of.opcode in _FUNCTIONS:
        source = value_type(of.words[-1])
        result = value_type(of.words[-2]) if of.words[0] == "cvt" else source
        arguments = [of.value(i, source) for i in range(1, len(of.operands))]
        made = llvm.CallIntrinsicOp(_FUNCTIONS[of.opcode], arguments, [result])
    if not isinstance(made, bool):
        of.set(of.build.add(made) if isinstance(made, Operation) else made)
    return made is not False


def _is_float(type: str) -> bool:
    return type.removesuffix("x2") in FLOATS


def _is_packed(type: str) -> bool:
    """Whether it is of several numbers, of which arithmetic of LLVM would make one."""
    return type[-2] == "x" and not isinstance(value_type(type), VectorType)


_BY_NAME: dict[str, Any] = {op.name: op for op in LLVM.operations}

_ARITHMETIC = {ptx: _BY_NAME[f"llvm.{name}"] for name, ptx in ARITHMETIC.items()}
"""Operations by what their opcodes say; floats are those that LLVM rounds to nearest, without flushing subnormals."""


@converts("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "fma")
def _arithmetic(of: PtxInstruction) -> Operation | bool:
    *words, type = of.words
    text, kind = ".".join(words), value_type(type)
    if text == "mul.wide":
        return _wide(of, type)
    if _is_packed(type):
        return False
    letters = "f" if _is_float(type) else "b" if type == "pred" else f"{type[0]}i" if type[0] in "us" else type[0]
    make = next((_ARITHMETIC[key] for letter in letters if (key := f"{text}.{letter}") in _ARITHMETIC), None)
    return False if make is None else make(*(of.value(i, kind) for i in range(1, len(of.operands))))


def _wide(of: PtxInstruction, type: str) -> Operation:
    kind = IntegerType(2 * bits_of(type))
    first, second = (_extended(of, of.value(i, value_type(type)), kind, type[0] == "s") for i in (1, 2))
    return llvm.MulOp(first, second)


def _extended(of: PtxInstruction, value: SSAValue, kind: Attribute, signed: bool) -> SSAValue:
    """An integer with more bits, or fewer."""
    if signed and width(value.type) < width(kind):
        return of.build.add(llvm.SExtOp(value, kind))
    return of.build.cast(value, kind)


@converts("shl", "shr")
def _shift(of: PtxInstruction) -> Operation | bool:
    """By a constant; PTX clamps amounts, and those beyond the width have no value in LLVM."""
    root, type = of.words[0], of.words[-1]
    amount = of.operands[2]
    if not isinstance(amount, Immediate) or not 0 <= int(amount.value) < bits_of(type):
        return False
    make = llvm.ShlOp if root == "shl" else llvm.AShrOp if type[0] == "s" else llvm.LShrOp
    kind = value_type(type)
    return make(of.value(1, kind), of.build.constant(int(amount.value), kind))


@converts("shf")
def _funnel(of: PtxInstruction) -> Operation | bool:
    """Two words shifted as one; the amount modulo 32."""
    if of.words[2] != "wrap":
        return False
    make = INTRINSICS["fshr" if of.words[1] == "r" else "fshl"]
    low, high, amount = (of.value(i, IntegerType(32)) for i in (1, 2, 3))
    return make(high, low, amount)


@converts("neg", "abs", "not")
def _unary(of: PtxInstruction) -> Operation | SSAValue | bool:
    *words, type = of.words
    kind = value_type(type)
    if words == ["not"]:
        return llvm.XOrOp(of.value(1, kind), of.build.constant(-1, kind))
    if words == ["neg"] and type[0] == "s" and not _is_packed(type):
        return llvm.SubOp(of.build.constant(0, kind), of.value(1, kind))
    if words == ["abs"]:
        return llvm.FAbsOp(of.value(1, kind), kind) if _is_float(type) else False
    return _arithmetic(of)


@converts("mad")
def _multiply_add(of: PtxInstruction) -> Operation | bool:
    kind = value_type(of.words[-1])
    if of.words[1:-1] != ("lo",):
        return False
    return llvm.AddOp(of.build.add(llvm.MulOp(of.value(1, kind), of.value(2, kind))), of.value(3, kind))


@converts("bfe")
def _bit_field(of: PtxInstruction) -> Operation | bool:
    """Converts `bfe` with constant positions to two shifts, which LLVM combines to `bfe` again."""
    type, (place, count) = of.words[1], of.operands[2:]
    bits = bits_of(type)
    if not (isinstance(place, Immediate) and isinstance(count, Immediate)):
        return False
    low, size = int(place.value), int(count.value)
    if size < 1 or low + size > bits:
        return False
    kind = IntegerType(bits)
    value = of.build.add(llvm.ShlOp(of.value(1, kind), of.build.constant(bits - low - size, kind)))
    shift = llvm.AShrOp if type[0] == "s" else llvm.LShrOp
    return shift(value, of.build.constant(bits - size, kind))


@converts("setp")
def _compare(of: PtxInstruction) -> Operation | bool:
    if len(of.words) != 3 or len(of.operands) != 3 or not isinstance(of.operands[0], Register):
        return False
    _, how, type = of.words
    kind = value_type(type)
    first, second = of.value(1, kind), of.value(2, kind)
    if _is_float(type):
        predicate = {"num": "ord", "nan": "uno"}.get(how) or (f"u{how[:2]}" if how[2:] else f"o{how}")
        return llvm.FCmpOp(first, second, predicate)
    sign = "s" if type[0] == "s" else "u"
    word = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(how, how)
    number = llvm.ICmpPredicateFlag(word if word in ("eq", "ne") else sign + word).to_int()
    return llvm.ICmpOp(first, second, IntegerAttr(number, i64))


@converts("selp")
def _select(of: PtxInstruction) -> Operation:
    kind = value_type(of.words[-1])
    return llvm.SelectOp(of.value(3, i1), of.value(1, kind), of.value(2, kind))


@converts("mov")
def _move(of: PtxInstruction) -> SSAValue | bool:
    target, source = of.operands
    if isinstance(target, Vector):
        return _unpack(of, target)
    if isinstance(source, Vector):
        return _pack(of, source)
    return of.read(source, register_type(of.type_of(target)))


def _unpack(of: PtxInstruction, target: Vector) -> bool:
    """The parts of a register, the lowest first."""
    parts = len(target.items)
    bits = bits_of(of.words[-1])
    value = of.value(1, IntegerType(bits))
    for i, item in enumerate(target.items):
        moved = value
        if i:
            moved = of.build.add(llvm.LShrOp(value, of.build.constant(i * bits // parts, value.type)))
        of.write(item, of.build.cast(moved, IntegerType(bits // parts)))
    return True


def _pack(of: PtxInstruction, source: Vector) -> SSAValue:
    parts = len(source.items)
    kind = IntegerType(bits_of(of.words[-1]))
    part = IntegerType(width(kind) // parts)
    result, *rest = (of.build.cast(of.read(item, part), kind) for item in source.items)
    for i, value in enumerate(rest, 1):
        shifted = of.build.add(llvm.ShlOp(value, of.build.constant(i * width(part), kind)))
        result = of.build.add(llvm.OrOp(result, shifted))
    return result


@converts("cvt")
def _convert(of: PtxInstruction) -> Operation | SSAValue | bool:
    *words, to, source = of.words[1:]
    if not words and to[0] in "us" and source[0] in "us":
        if width(register_type(of.type_of(of.operands[0]))) != bits_of(to):
            return False  # PTX extends signed results to their register
        kind = IntegerType(bits_of(source))
        return _extended(of, of.value(1, kind), IntegerType(bits_of(to)), source[0] == "s")
    if to in ("f32", "f64") and source[0] in "us" and words == ["rn"]:
        make = llvm.SIToFPOp if source[0] == "s" else CASTS["uitofp"]
        return make(of.value(1, IntegerType(bits_of(source))), FLOATS[to])
    if (to, source, *words) in (("f32", "f16"), ("f64", "f32"), ("f16", "f32", "rn"), ("f32", "f64", "rn")):
        return (llvm.FPTruncOp if words else llvm.FPExtOp)(of.value(1, FLOATS[source]), FLOATS[to])
    return False


@converts("cvta")
def _convert_address(of: PtxInstruction) -> SSAValue | bool:
    to = of.words[1] == "to"
    space = of.bindings["P"].partition("::")[0] if of.bindings["P"] != "shared::cluster" else of.bindings["P"]
    source = of.operands[1]
    if space == "param":
        # A parameter's address is generic here.
        return False if to or not isinstance(source, Register) else of.value(1, IntegerType(64))
    if isinstance(source, Symbol) or of.words[-1] != "u64":
        return False
    pointer = of.build.pointer(of.value(1, IntegerType(64)), "" if to else space)
    return of.build.address(of.build.to_space(pointer, space if to else ""), 64)


_PLAIN = frozenset(("ld", "st", "weak", "global", "shared", "shared::cta", "local", "const", "v2", "v4"))


def _access(of: PtxInstruction, slot: int) -> tuple[Attribute, int] | None:
    """The element type and the number of elements of a load or store; None for forms with further qualifiers."""
    *words, type = of.words
    if not _PLAIN.issuperset(words) or type == "b128":
        return None
    return (FLOATS[type] if _is_float(type) else IntegerType(bits_of(type))), len(of.items(slot))


@converts("ld")
def _load(of: PtxInstruction) -> Operation | SSAValue | bool:
    address = of.operands[1]
    if of.bindings.get("P", "").startswith("param"):
        return _load_parameter(of, address)
    access = _access(of, 0)
    if access is None:
        return False
    kind, count = access
    pointer = of.pointer(1)
    loaded_type = kind if count == 1 else VectorType(kind, [count])
    loaded = of.build.add(llvm.LoadOp(pointer, loaded_type, width(kind) * count // 8))
    values = [loaded] if count == 1 else of.build.extract(loaded, count)
    for item, value in zip(of.items(0), values, strict=True):
        signed = of.words[-1][0] == "s" and isinstance(item, Register)
        wide = register_type(of.type_of(item)) if signed and isinstance(item, Register) else value.type
        of.write(item, _extended(of, value, wide, signed) if signed else value)
    return True


def _load_parameter(of: PtxInstruction, address: Operand) -> Operation | SSAValue | bool:
    """A parameter is an argument of the function; what is loaded of an array is read through its pointer."""
    if not isinstance(address, Address) or not isinstance(address.base, Symbol):
        fail(of.op, f"{of.opcode}: expected the name of a parameter, got {operand_text(address)}")
    name = address.base.name
    pointer = of.symbols.pointer(name, of.build)
    type = of.words[-1]
    kind = FLOATS[type] if _is_float(type) else IntegerType(bits_of(type))
    if pointer is not None:
        place = of.build.offset(of.build.address(pointer, 64), address.offset)
        return llvm.LoadOp(of.build.pointer(place, ""), kind, width(kind) // 8)
    value = of.symbols.arguments.get(name)
    if value is None or address.offset or not isinstance(of.operands[0], Register):
        return False
    return of.build.address(value, 64) if isinstance(value.type, llvm.LLVMPointerType) else value


@converts("st")
def _store(of: PtxInstruction) -> bool:
    access = _access(of, 1)
    if access is None:
        return False
    kind, count = access
    values = [of.read(item, kind) for item in of.items(1)]
    stored = values[0] if count == 1 else of.build.vector(values)
    of.build.place(llvm.StoreOp(stored, of.pointer(0), width(kind) * count // 8))
    return True
