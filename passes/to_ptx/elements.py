"""Scalar operations of a region on elements, as instructions on registers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, nan, prod
from typing import NamedTuple

from xdsl.dialects import arith, math, vector
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType, VectorType
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.utils.hints import isa

from ...dialect.isa.form import ELEMENT_TYPES
from ...dialect.isa.row import Target
from ...dialect.warp.attributes import element_row, type_name
from ...dialect.warp.elements import GeluOp, YieldOp, is_approximate
from ...dialect.warp.memory import EXPONENT
from ..diagnostics import fail
from .emitter import Emitter, VirtualRegister, floating, single
from .fragments import element_bits, is_clamped
from .functions import ACCURATE, APPROXIMATE, FUNCTIONS, HALVED, approximate_gelu, gelu
from .scalars import Instructions, Operand

# What registers hold of an element of a matrix, by its type: see `elements.py`.

NARROW = ("f16", "bf16")
"""Types whose elements are held as f32."""


class EightBits(NamedTuple):
    """The PTX name of an 8-bit type, and the absolute value from which MLIR and PTX round differently. PTX saturates.
    MLIR rounds to infinity, from that value on, or to NaN if the type has no infinity."""

    name: str
    bound: float
    has_infinity: bool


EIGHT = {"f8E4M3FN": EightBits("e4m3", 464.0, False), "f8E5M2": EightBits("e5m2", 61440.0, True)}
"""Types of 8 bits that an element can be converted to, and from them to others. The bound is midway between the largest
number and the next that more exponents would allow, and goes to the even one."""
FLOATS = ("f32", "f64", *NARROW)
SINGLE = ("f32", *NARROW)
"""Types whose elements are held as f32 and computed with."""
INTEGERS = ("i1", "i4", "i8", "i16", "i32", "i64")
WIDTH = 32
LONG = "b64"
"""The register of an integer of 64 bits."""


@dataclass(frozen=True)
class HeldElement:
    """An element in a register, or a literal. `pending` is the 16- or 8-bit type to which it is yet to be rounded;
    `clamped` says that an 8-bit element already saturates."""

    word: Operand
    pending: str = ""
    clamped: bool = False


@lru_cache
def ptx_type_of(kind: Attribute) -> str:
    """The PTX type of the register of an element; "" for a type that is not lowered."""
    name = type_name(kind)
    if name in INTEGERS:
        return "pred" if name == "i1" else LONG if name == "i64" else "b32"
    return "f64" if name == "f64" else "f32" if name in (*FLOATS, *EIGHT) else ""


def width_of(kind: Attribute) -> int:
    """The bits of an integer type; of another, the widest that is lowered."""
    return kind.bitwidth if isinstance(kind, IntegerType) else WIDTH


def value_registers(emitter: Emitter, kind: Attribute) -> list[VirtualRegister]:
    """Fresh registers for a number, or for a vector that fills its last register; none for anything else."""
    if not isa(kind, VectorType):
        return emitter.registers(name, 1) if (name := ptx_type_of(kind)) else []
    element, count = kind.get_element_type(), prod(kind.get_shape())
    each = elements_per_register(element)
    name = (ptx_type_of(element) if each == 1 else "") or "b32"
    return [] if not each or count % each else emitter.registers(name, count // each)


def elements_per_register(element: Attribute) -> int:
    """How many elements of a vector a register has: of i1 and i64 one. 0 for a type without registers."""
    row, number = element_row(element), {"i1": 1, "i64": 1, "i16": 2}.get(type_name(element), 0)
    return number or (0 if row is None else max(1, WIDTH // row.memory_bits))


def literal(kind: Attribute, value: float) -> Operand:
    """A constant of an element type as a literal of its register's type."""
    element = element_row(kind)
    if element is None or not element.is_float:
        return int(value)
    bits = element_bits(element, value)
    if element.name == "f64":
        return floating(bits, 64)
    if element.name == "f16":
        bits = element_bits(ELEMENT_TYPES["f32"], struct.unpack("<e", struct.pack("<H", bits))[0])
    return floating(bits << 16 if element.name == "bf16" else bits)


# Scalar operations of a region on elements, as instructions on registers.
#
# An element of f32, f16 or bf16 is an f32 register: arithmetic in 16 bits is arithmetic in f32 rounded once more,
# which for +, -, *, / and square roots gives what rounding the exact result once gives, f32 having more than twice the
# digits ("When is double rounding innocuous?", Figueroa, 1995); only bf16 results below 2^-126 are rounded twice. The
# second rounding waits until something reads the element, for the last one is done by the instruction that packs two
# results into a register. f64 is an f64 register; integers are a b32 register, sign-extended, or of 64 bits a b64
# register; i1 is a predicate.


class Elements:
    """Lowers regions on elements."""

    def __init__(self, emitter: Emitter, target: Target) -> None:
        self.emit, self.target = Instructions(emitter), target
        self._plans: dict[Region, list[Operation]] = {}
        """The operations of a region that its result depends on, checked once."""

    def apply(self, region: Region, arguments: Sequence[Mapping[SSAValue, HeldElement]]) -> list[HeldElement]:
        """Applies a region to elements, once for each mapping of arguments. Unused arguments may be missing."""
        every, emitter = [dict(elements) for elements in arguments], self.emit.emitter
        around = emitter.operation
        if region not in self._plans:
            self._plans[region] = [op if isinstance(op, YieldOp) else _checked(op) for op in _needed(region)]
        for op in self._plans[region]:
            if isinstance(op, YieldOp):
                emitter.operation = around
                return [mapped[op.elements[0]] for mapped in every]
            emitter.operation = op
            operands = [[mapped[value] for value in op.operands] for mapped in every]
            for mapped, result in zip(every, self._lower_all(op, operands), strict=True):
                mapped[op.results[0]] = result
        fail(region.block.ops.first or YieldOp(region.block.args[0]), "expected warp.yield")

    def _lower_all(self, op: Operation, operands: Sequence[Sequence[HeldElement]]) -> list[HeldElement]:
        """Lowers an operation for the operands of each element."""
        if not isinstance(op, GeluOp):
            return [self._lower(op, of_one) for of_one in operands]
        elements = [self.rounded(x).word for (x,) in operands]
        if op.approximate is not None and op.by.data in HALVED:
            return [HeldElement(approximate_gelu(self.emit, x, op.by.data)) for x in elements]
        return [HeldElement(y) for y in gelu(self.emit, elements, op.by.data)]

    def lower(self, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
        """The result of an operation on elements, outside of a region of its own."""
        return self._lower(_checked(op), operands)

    def _lower(self, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
        handler = RULES[op.name]
        if isinstance(op, arith.SelectOp | arith.TruncFOp):
            return handler(self, op, operands)
        return handler(self, op, [self.rounded(element) for element in operands])

    def rounded(self, element: HeldElement) -> HeldElement:
        """The element with its value final."""
        if not element.pending:
            return element
        i, value = self.emit, element.word
        if element.pending == "bf16":
            # The pair (value, 0) of bf16 has the bits of the same f32.
            return HeldElement(i.of_bits(i("cvt.rn.bf16x2.f32", value, single(0.0))))
        if element.pending in EIGHT:
            return HeldElement(self._rounded_to_8_bits(element))
        return HeldElement(i("cvt.f32.f16", i("cvt.rn.f16.f32", value)))

    def _rounded_to_8_bits(self, element: HeldElement) -> VirtualRegister:
        """A value rounded to an 8-bit type, in f32, by the instructions that pack and unpack two."""
        i, value, kind = self.emit, element.word, EIGHT[element.pending]
        both = i(f"cvt.rn.f16x2.{kind.name}x2", i(f"cvt.rn.satfinite.{kind.name}x2.f32", single(0.0), value))
        finite = i("cvt.f32.f16", i.emitter.halves(both)[0])
        if element.clamped:
            return finite
        otherwise = i("copysign.f32", value, single(inf)) if kind.has_infinity else single(nan)
        return i("selp.f32", otherwise, finite, self.overflows(value, kind))

    def overflows(self, value: Operand, kind: EightBits) -> VirtualRegister:
        """Whether a value is beyond all that are rounded to a number of a type of 8 bits."""
        compared = "ge" if kind.has_infinity else "gt"
        return self.emit(f"setp.{compared}.f32", self.emit("abs.f32", value), single(kind.bound))

    def narrow(self, op: Operation, source: str, value: Operand) -> HeldElement:
        """A number of a type of 32 bits or more, rounded once to 16 or 8 bits, and held as f32. Without the instruction
        it is rounded to an odd f32, if that is not exact, and then as the number is: f32 has 16 bits more."""
        i, opcode = self.emit, f"cvt.rn.{op.results[0].type}.{source}"
        if i.emitter.has(opcode):
            return HeldElement(i(f"cvt.f32.{op.results[0].type}", i(opcode, value)))
        lower = i(f"cvt.rz.f32.{source}", value)
        again = i("cvt.f64.f32" if source == "f64" else f"cvt.rzi.{source}.f32", lower)
        odd = i("selp.b32", 1, 0, i(f"setp.ne.{source}", again, value))
        return HeldElement(i.of_bits(i("or.b32", i.bits(lower), odd)), type_name(op.results[0].type))

    def final(self, value: VirtualRegister, kind: Attribute) -> HeldElement:
        """What an instruction in f32 or f64 gave, as an element of a type."""
        return HeldElement(value, type_name(kind) if type_name(kind) in NARROW else "")

    def normal(self, value: VirtualRegister, kind: Attribute) -> HeldElement:
        """What an instruction on integers gave, as an element of a type: of fewer than 32 bits, sign-extended."""
        width = width_of(kind)
        return HeldElement(value if width >= WIDTH else self.extended(value, width))

    def extended(self, value: Operand, width: int, sign: str = "s") -> VirtualRegister:
        """The low bits of an integer, extended."""
        if width in (8, 16):
            return self.emit(f"cvt.{sign}32.{sign}{width}", value)
        return self.emit(f"bfe.{sign}32", value, 0, width)


def _needed(region: Region) -> list[Operation]:
    """The operations of a region that its result depends on, in order."""
    needed: list[Operation] = []
    wanted: set[SSAValue] = set()
    for op in reversed(region.block.ops):
        if isinstance(op, YieldOp) or not wanted.isdisjoint(op.results):
            needed.append(op)
            wanted.update(op.operands)
    return needed[::-1]


def _checked(op: Operation) -> Operation:
    """The operation; fails if it is not lowered on elements of its types."""
    for value in (*op.operands, *op.results):
        if not ptx_type_of(value.type) and not (value.type == EXPONENT and isinstance(op, arith.ExtFOp)):
            fail(op, f"{op.name} on elements of {value.type} is not lowered; "
                 f"{', '.join((*FLOATS, *INTEGERS))} are")  # fmt: skip
        if value in op.operands and type_name(value.type) in EIGHT and not isinstance(op, arith.ExtFOp):
            fail(op, f"{op.name} of {value.type} is not lowered: an element can only be stored as one, or extended")
    if op.name not in (*RULES, GeluOp.name):
        names = ", ".join(sorted((*RULES, GeluOp.name)))
        fail(op, f"{op.name} is not lowered on elements; these are: {names}")
    return op


Handler = Callable[[Elements, Operation, Sequence[HeldElement]], HeldElement]


def _type(op: Operation) -> str:
    """The type of the register that holds the first operand."""
    return ptx_type_of(op.operands[0].type)


def _size(kind: Attribute) -> int:
    """The bits of the register of an integer."""
    return 64 if ptx_type_of(kind) == LONG else WIDTH


def _constant(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
    value = op.properties["value"]
    if not isinstance(value, FloatAttr | IntegerAttr):
        fail(op, f"expected a number, got {value}")
    kind = op.results[0].type
    if ptx_type_of(kind) == "pred":
        # A comparison that is always so, for there is no literal predicate.
        return HeldElement(e.emit(f"setp.{'eq' if value.value.data else 'ne'}.s32", 0, 0))
    if type_name(kind) in EIGHT:
        return HeldElement(single(value.value.data), type_name(kind))
    return HeldElement(literal(kind, value.value.data))


def _float(opcode: str, types: Sequence[str] = FLOATS, *, exact: bool = False) -> Handler:
    """A handler that emits an instruction for elements of some types; an `exact` one's result needs no rounding."""

    def handle(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
        type, kind = _type(op), type_name(op.operands[0].type)
        if kind not in types:
            fail(op, f"{op.name} on elements of {kind} is not lowered; on {' and '.join(types)} it is")
        result = e.emit(f"{opcode.format(type)}.{type}", *(o.word for o in operands))
        return HeldElement(result) if exact else e.final(result, op.results[0].type)

    return handle


def _extreme(opcode: str) -> Handler:
    """The larger or smaller of two numbers, NaN if one is. PTX has none for f64: there the sum gives the NaN."""
    narrower = _float(f"{opcode}.NaN", SINGLE, exact=True)

    def handle(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
        if _type(op) != "f64":
            return narrower(e, op, operands)
        a, b = (o.word for o in operands)
        extreme, nan, total = e.emit(f"{opcode}.f64", a, b), e.emit("setp.nan.f64", a, b), e.emit(
            "add.rn.f64", a, b)  # fmt: skip
        return HeldElement(e.emit("selp.f64", total, extreme, nan))

    return handle


def _divide(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
    type = _type(op)
    opcode = "div.approx.ftz.f32" if type == "f32" and is_approximate(op) else f"div.rn.{type}"
    return e.final(e.emit(opcode, *(o.word for o in operands)), op.results[0].type)


def _function(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
    words, kind, approximate = [o.word for o in operands], op.results[0].type, is_approximate(op)
    if _type(op) == "f64":  # others were expanded
        return HeldElement(e.emit("sqrt.rn.f64", *words))
    if op.name in FUNCTIONS:
        return e.final(FUNCTIONS[op.name](e.emit, words[0]), kind)
    table = APPROXIMATE if approximate else ACCURATE
    return e.final(table[op.name](e.emit, words[0], e.target.sm), kind)


def _integer(opcode: str, *, extends: bool = False) -> Handler:
    """An instruction on integers, which ends with the bits of their registers; `extends`: its operands must be
    zero-extended first. A shift of 64 bits goes by a number of 32, which is at least 64 where more is asked for."""

    def handle(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
        kind, sources = op.results[0].type, [o.word for o in operands]
        if _type(op) == "pred":
            if opcode not in ("and.b", "or.b", "xor.b"):
                fail(op, f"{op.name} on elements of i1 is not lowered")
            return HeldElement(e.emit(f"{opcode.removesuffix('b')}pred", *sources))
        if extends and (width := width_of(kind)) < WIDTH:
            sources = [e.extended(source, width, "u") for source in sources]
        if opcode[:3] in ("shl", "shr") and _size(kind) > WIDTH:
            sources[1] = e.emit("cvt.u32.u64", e.emit("min.u64", sources[1], 64))
        return e.normal(e.emit(f"{opcode}{_size(kind)}", *sources), kind)

    return handle


_ORDERED = {
    **{f"o{name}": name for name in ("eq", "gt", "ge", "lt", "le")},
    **{f"u{name}": f"{name}u" for name in ("eq", "gt", "ge", "lt", "le", "ne")},
    "one": "ne",
    "ord": "num",
    "uno": "nan",
}
"""PTX's comparisons by MLIR's."""


def _compare_floats(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
    names = arith.CMPF_COMPARISON_OPERATIONS
    predicate = op.properties["predicate"]
    name = names[predicate.value.data] if isinstance(predicate, IntegerAttr) else ""
    if name not in _ORDERED:
        return HeldElement(e.emit(f"setp.{'eq' if name == 'true' else 'ne'}.s32", 0, 0))
    return HeldElement(e.emit(f"setp.{_ORDERED[name]}.{_type(op)}", *(o.word for o in operands)))


def _compare_integers(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
    predicate = op.properties["predicate"]
    name = arith.CMPI_COMPARISON_OPERATIONS[predicate.value.data] if isinstance(predicate, IntegerAttr) else ""
    if _type(op) == "pred":
        if name not in ("eq", "ne"):
            fail(op, f"{op.name} {name} on elements of i1 is not lowered; eq and ne are")
        differ = e.emit("xor.pred", *(o.word for o in operands))
        return HeldElement(differ if name == "ne" else e.emit("not.pred", differ))
    # Sign-extended numbers compare as unsigned ones in the same order that they have before.
    sign = "u" if name.startswith("u") else "s"
    bits = _size(op.operands[0].type)
    return HeldElement(e.emit(f"setp.{name.removeprefix(sign)}.{sign}{bits}", *(o.word for o in operands)))


def _select(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
    condition, yes, no = operands
    if yes.pending != no.pending:
        yes, no = e.rounded(yes), e.rounded(no)
    type = ptx_type_of(op.results[0].type)
    if type == "pred":
        either = e.emit("and.pred", yes.word, condition.word), e.emit("not.pred", condition.word)
        return HeldElement(e.emit("or.pred", either[0], e.emit("and.pred", no.word, either[1])))
    return HeldElement(e.emit(f"selp.{type}", yes.word, no.word, condition.word), yes.pending)


def _truncate(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
    source, kind = op.operands[0].type, str(op.results[0].type)
    (x,) = (e.rounded(element) for element in operands)
    if type_name(source) != "f64":
        clamped = kind in EIGHT and is_clamped(op.operands[0], EIGHT[kind].bound)
        return replace(x, pending=kind, clamped=clamped) if kind in (*NARROW, *EIGHT) else x
    if kind == "f32":
        return HeldElement(e.emit("cvt.rn.f32.f64", x.word))
    return e.narrow(op, "f64", x.word)


def _extend(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
    (x,), kind = operands, op.results[0].type
    if op.operands[0].type == EXPONENT and type_name(kind) == "f16":  # which has few of them
        return HeldElement(x.word, "f16")
    return HeldElement(e.emit("cvt.f64.f32", x.word)) if ptx_type_of(kind) == "f64" else x


def _from_integer(sign: str) -> Handler:
    def handle(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
        (x,), kind, source = operands, op.results[0].type, op.operands[0].type
        width = width_of(source)
        if width == 1:
            one, type = -1.0 if sign == "s" else 1.0, ptx_type_of(kind)
            return HeldElement(e.emit(f"selp.{type}", literal(kind, one), literal(kind, 0.0), x.word))
        word, number = x.word, f"{sign}{_size(source)}"
        if width < WIDTH and sign == "u":
            word = e.extended(word, width, "u")
        if type_name(kind) in NARROW and width >= WIDTH:
            return e.narrow(op, number, word)
        return e.final(e.emit(f"cvt.rn.{ptx_type_of(kind)}.{number}", word), kind)

    return handle


def _to_integer(sign: str) -> Handler:
    def handle(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
        (x,), kind = operands, op.results[0].type
        if ptx_type_of(kind) == "pred":
            fail(op, f"{op.name} to i1 is not lowered; arith.cmpf is")
        return e.normal(e.emit(f"cvt.rzi.{sign}{_size(kind)}.{_type(op)}", x.word), kind)

    return handle


def _extend_integer(sign: str) -> Handler:
    def handle(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
        (x,), width, bits = operands, width_of(op.operands[0].type), _size(op.results[0].type)
        if width == 1:
            return HeldElement(e.emit(f"selp.b{bits}", -1 if sign == "s" else 1, 0, x.word))
        word = x.word if sign == "s" or width == WIDTH else e.extended(x.word, width, "u")
        return HeldElement(word if bits == WIDTH else e.emit(f"cvt.{sign}64.{sign}32", word))

    return handle


def _truncate_integer(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
    (x,), kind, bits = operands, op.results[0].type, _size(op.operands[0].type)
    if ptx_type_of(kind) == "pred":
        return HeldElement(e.emit(f"setp.ne.s{bits}", e.emit(f"and.b{bits}", x.word, 1), 0))
    return e.normal(e.emit("mov.b32" if bits == WIDTH else "cvt.u32.u64", x.word), kind)


def _same_bits(e: Elements, op: Operation, operands: Sequence[HeldElement]) -> HeldElement:
    """The bits of a number as one of another type, of which those of bf16 are the upper half of an f32."""
    (x,), source, kind = operands, type_name(op.operands[0].type), type_name(op.results[0].type)
    if source[0] == kind[0] or not {source, kind} <= {"f16", "f32", "f64", "bf16", "i16", "i32", "i64"}:
        fail(op, f"{op.name} from {source} to {kind} is not lowered; between i32 and f32, i64 and f64, i16 and (b)f16")
    if kind == "f16":
        return HeldElement(e.emit("cvt.f32.f16", e.emit.emitter.halves(x.word)[0]))
    if source == "f16":
        return HeldElement(e.emit("cvt.s32.s16", e.emit("cvt.rn.f16.f32", x.word)))
    word = e.emit("shl.b32", x.word, 16) if kind == "bf16" else x.word
    moved = e.emit(f"mov.b{64 if '64' in kind else 32}", word, type=ptx_type_of(op.results[0].type))
    return HeldElement(e.emit("shr.s32", moved, 16) if source == "bf16" else moved)


RULES: Mapping[str, Handler] = {
    arith.ConstantOp.name: _constant,
    arith.AddfOp.name: _float("add.rn"),
    arith.SubfOp.name: _float("sub.rn"),
    arith.MulfOp.name: _float("mul.rn"),
    arith.DivfOp.name: _divide,
    arith.NegfOp.name: _float("neg", exact=True),
    arith.MaximumfOp.name: _extreme("max"),
    arith.MinimumfOp.name: _extreme("min"),
    arith.MaxnumfOp.name: _float("max", exact=True),
    arith.MinnumfOp.name: _float("min", exact=True),
    math.AbsFOp.name: _float("abs", exact=True),
    math.FmaOp.name: _float("fma.rn", ("f32", "f64")),
    vector.FMAOp.name: _float("fma.rn", ("f32", "f64")),
    math.FloorOp.name: _float("cvt.rmi.{0}", exact=True),
    math.CeilOp.name: _float("cvt.rpi.{0}", exact=True),
    math.RoundEvenOp.name: _float("cvt.rni.{0}", exact=True),
    math.TruncOp.name: _float("cvt.rzi.{0}", exact=True),
    **dict.fromkeys((*ACCURATE, *FUNCTIONS), _function),
    arith.CmpfOp.name: _compare_floats,
    arith.CmpiOp.name: _compare_integers,
    arith.SelectOp.name: _select,
    arith.ExtFOp.name: _extend,
    arith.TruncFOp.name: _truncate,
    arith.SIToFPOp.name: _from_integer("s"),
    arith.UIToFPOp.name: _from_integer("u"),
    arith.FPToSIOp.name: _to_integer("s"),
    arith.FPToUIOp.name: _to_integer("u"),
    arith.ExtSIOp.name: _extend_integer("s"),
    arith.ExtUIOp.name: _extend_integer("u"),
    arith.TruncIOp.name: _truncate_integer,
    arith.BitcastOp.name: _same_bits,
    arith.AddiOp.name: _integer("add.s"),
    arith.SubiOp.name: _integer("sub.s"),
    arith.MuliOp.name: _integer("mul.lo.s"),
    arith.MaxSIOp.name: _integer("max.s"),
    arith.MinSIOp.name: _integer("min.s"),
    arith.DivSIOp.name: _integer("div.s"),
    arith.RemSIOp.name: _integer("rem.s"),
    arith.DivUIOp.name: _integer("div.u", extends=True),
    arith.RemUIOp.name: _integer("rem.u", extends=True),
    arith.MaxUIOp.name: _integer("max.u", extends=True),
    arith.MinUIOp.name: _integer("min.u", extends=True),
    arith.AndIOp.name: _integer("and.b"),
    arith.OrIOp.name: _integer("or.b"),
    arith.XOrIOp.name: _integer("xor.b"),
    arith.ShLIOp.name: _integer("shl.b"),
    arith.ShRSIOp.name: _integer("shr.s"),
    arith.ShRUIOp.name: _integer("shr.u", extends=True),
}
"""What each operation becomes."""
