"""Operations of `nvvm` as instructions of PTX: by the line that each says, products of matrices by their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from xdsl.dialects.builtin import i1, i64
from xdsl.dialects.llvm import LLVMPointerType
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialect.isa import wmma
from ...dialect.isa.form import ELEMENT_TYPES, Shape
from ...dialect.isa.tensor_product import LOAD_SHAPES
from ...dialect.mlir.nvvm import MmaOp, MmaScaledOp, MmaSparseOp, MmaSparseScaledOp, WgmmaMmaAsyncOp
from ...dialect.mlir.nvvm_ops import SPECIAL, NvvmOp
from ...dialect.mlir.nvvm_types import TextPiece, TextPlace, spelled, template
from ..diagnostics import fail
from .llvm_kernel import (
    AddressOf,
    HeldRegister,
    KernelOperand,
    LlvmKernel,
    ResultAndPredicate,
    Words,
    bits_of,
    resized,
    space_of,
    types_of,
)

_REFUSED = ("predicate", "im2colOffsets", "l2CacheHint", "reductionPredicate", "scope",
            "relaxed", "isCTAOnly", "mode", "group", "tensormap", "uniform", "evictPriority")  # fmt: skip
"""Operands and properties that change the instruction in a way that the line of the operation does not say."""


def lower(kernel: LlvmKernel, op: NvvmOp) -> None:
    """Adds the instruction of an operation."""
    if op.name in SPECIAL:
        bits = bits_of(op.results[0].type)
        kernel.give(op, kernel.compute(f"mov.u{bits}", op.results[0].type, SPECIAL[op.name]))
    elif isinstance(op, MmaOp | MmaSparseOp | MmaScaledOp | MmaSparseScaledOp):
        _product(kernel, op)
    elif isinstance(op, WgmmaMmaAsyncOp):
        _product_of_warpgroup(kernel, op)
    elif op.name == "nvvm.wmma.mma":
        _product_of_opaque(kernel, op)
    elif op.name == "nvvm.mbarrier.try_wait.parity":
        _wait(kernel, op)
    elif op.name == "nvvm.tcgen05.mma_smem_desc":
        _descriptor(kernel, op)
    else:
        InstructionLine(kernel, op).emit()


class Receiver(Protocol):
    """What has the operands of an operation of `nvvm`, and takes its instruction."""

    def fresh(self, kind: Attribute) -> list[HeldRegister]: ...

    def held(self, value: SSAValue) -> HeldRegister: ...

    def word(self, value: SSAValue) -> HeldRegister | str: ...

    def words(self, value: SSAValue) -> Words: ...

    def emit(self, opcode: str, *operands: KernelOperand) -> None: ...

    def give(self, op: Operation, *words: HeldRegister | str) -> None: ...


class InstructionLine:
    """An operation whose line of `nvvm_types` says its instruction."""

    def __init__(self, kernel: Receiver, op: NvvmOp) -> None:
        self.kernel = kernel
        self.op = op
        self.result = kernel.fresh(op.results[0].type) if op.results else []
        definition = op.get_irdl_definition()
        self.results = [name for name, _ in definition.results]
        self.fields: dict[str, Sequence[SSAValue]] = {}
        for name, _ in definition.operands:
            value: SSAValue | Sequence[SSAValue] | None = getattr(op, name)
            self.fields[name] = () if value is None else (value,) if isinstance(value, SSAValue) else tuple(value)

    def emit(self) -> None:
        op, made = self.op, template(self.op.PTX)
        said = {place.name for place in made.places} | {piece.name for piece in made.pieces}
        for name in _REFUSED:
            if name not in said and (self.fields.get(name) or name in op.properties):
                fail(op, f"{op.name} is not lowered with {name}")
        opcode = "".join(self._spelled(piece) for piece in made.pieces)
        operands = [self._operand(place) for place in made.places]
        self.kernel.emit(opcode, *(operand for operand in operands if operand is not None))
        if self.result:
            self.kernel.give(op, *self.result)

    def _spelled(self, piece: TextPiece) -> str:
        """What a piece of the opcode is for this operation."""
        values = self.fields.get(piece.name, ())
        match piece.kind:
            case "space":
                space = space_of(values[0].type)
                text = piece.texts.get(space, space)
                return f".{text}" if text else ""
            case "count":
                return str(len(values))
            case "times":
                count = len(types_of(values[0].type)) if values else len(self.result)
                return str(count // LOAD_SHAPES[spelled(self.op.properties["shape"]).removeprefix("shape_")])
            case "present":
                return piece.texts[""] if values else ""
            case "typed":
                return piece.texts.get(str(values[0].type), "")
            case "word" if piece.name not in self.op.properties:
                return ""
            case "word":
                word = spelled(self.op.properties[piece.name])
                return piece.texts.get(word, "") if piece.texts else word
            case _:
                return piece.name

    def _operand(self, place: TextPlace) -> KernelOperand | None:
        kernel, values = self.kernel, self.fields.get(place.name, ())
        match place.kind:
            case "text":
                return place.name
            case "constant":
                return spelled(self.op.properties.get(place.name))
            case "address" if isinstance(values[0].type, LLVMPointerType):
                return AddressOf(kernel.held(values[0]))
            case "address":
                return kernel.held(values[0])
            case "elements":
                return self.result or (kernel.words(values[0]) if values else None)
            case "tensor":
                return (AddressOf(kernel.held(values[0])), [kernel.word(each) for each in self.fields[place.more]])
            case "vector":
                return self.result if place.name in self.results else [kernel.held(each) for each in values]
            case "elected":
                (elected,) = self.result
                return ResultAndPredicate("_", elected)
            case _ if place.name in self.results:
                first, *valid = self.result or [place.more]
                return ResultAndPredicate(first, valid[0]) if valid and isinstance(valid[0], HeldRegister) else first
            case _:
                return kernel.word(values[0]) if values else place.more or None


def _wait(kernel: LlvmKernel, op: NvvmOp) -> None:
    """`mbarrier.try_wait.parity`: tries until the phase has ended."""
    address, phase, ticks = op.operands
    label = f"wait_{len(kernel.lines)}"
    kernel.label(label)
    space = space_of(address.type)
    opcode = f"mbarrier.try_wait.parity{f'.{space}' if space else ''}.b64"
    ended = kernel.compute(opcode, i1, AddressOf(kernel.held(address)), kernel.word(phase), kernel.word(ticks))
    kernel.emit("bra", label, guard="@!", predicate=ended)


DESCRIPTOR_FIELDS = ((0, 14), (16, 14), (32, 14), (49, 3), (52, 1), (61, 3))
"""The lowest bit and the number of bits of each operand of `tcgen05.mma_smem_desc`. Source: PTX ISA 9.7.16.4.1."""

DESCRIPTOR = 1 << 46
"""The bits that every descriptor has."""


def _descriptor(kernel: LlvmKernel, op: NvvmOp) -> None:
    """`tcgen05.mma_smem_desc`: operands one after another into the word."""
    word: HeldRegister | str = str(DESCRIPTOR)
    for value, (at, bits) in zip(op.operands, DESCRIPTOR_FIELDS, strict=True):
        field = resized(kernel, kernel.held(value), value.type, i64)
        word = kernel.compute("bfi.b64", i64, field, word, str(at), str(bits))
    kernel.give(op, word)


_ELEMENTS = {"vector<2xf16>": "f16", "f16": "f16", "f32": "f32", "f64": "f64", "i32": "s32"}


def _product(kernel: LlvmKernel, op: MmaOp | MmaSparseOp | MmaScaledOp | MmaSparseScaledOp) -> None:
    a, b = (
        spelled(kind) or _ELEMENTS.get(str(values[0].type), "")
        for kind, values in ((op.multiplicandAPtxType, op.operandA), (op.multiplicandBPtxType, op.operandB))
    )
    d, c = _ELEMENTS.get(str(op.res.type.types.data[0]), ""), _ELEMENTS.get(str(op.operandC[0].type), "")
    result = kernel.fresh(op.res.type)
    operands: list[KernelOperand] = [
        [kernel.held(v) for v in values] for values in (op.operandA, op.operandB, op.operandC)
    ]
    overflow = spelled(op.properties.get("intOverflowBehavior"))
    mnemonic, layouts, after = "mma", "row.col", ""
    if isinstance(op, MmaSparseOp | MmaSparseScaledOp):
        mnemonic += f".sp{'' if op.orderedMetadata is None else '::ordered_metadata'}"
        operands += [kernel.word(op.sparseMetadata), kernel.word(op.sparsitySelector)]
    if isinstance(op, MmaOp):
        layouts = f"{spelled(op.layoutA)}.{spelled(op.layoutB)}"
        overflow = overflow or "satfinite"
        after = f".{(spelled(op.b1Op) or 'xor_popc').replace('_', '.')}" if a == "b1" else ""
    elif op.kind is not None:
        layouts += f".kind::{spelled(op.kind)}"
    if isinstance(op, MmaScaledOp | MmaSparseScaledOp):
        layouts += f".block_scale.scale_vec::{spelled(op.scaleVecSize)[1:]}X"
        after = f".{spelled(op.blockScaleFormat)}"
        for data, *ids in (
            (op.scaleAData, op.byteIdA, op.threadIdA), (op.scaleBData, op.byteIdB, op.threadIdB),
        ):  # fmt: skip
            operands += [[kernel.held(data)], [kernel.word(each) for each in ids]]
    clamped = ".satfinite" if a in ("s8", "u8", "s4", "u4") and overflow == "satfinite" else ""
    kernel.emit(f"{mnemonic}.sync.aligned.{op.shape}.{layouts}{clamped}.{d}.{a}.{b}.{c}{after}", result, *operands)
    kernel.give(op, *result)


def _product_of_opaque(kernel: LlvmKernel, op: NvvmOp) -> None:
    """`wmma.mma`: `args` are the fragments of A, B and C, whose sizes follow from the shape."""
    m, n, k, a, d, *layouts = (
        spelled(op.properties[name]) for name in ("m", "n", "k", "eltypeA", "eltypeB", "layoutA", "layoutB")
    )
    shape, types = Shape(int(m), int(n), int(k)), {"a": a, "b": a, "c": d}
    counts = [wmma.registers(shape, role, ELEMENT_TYPES[name]) for role, name in types.items()]
    if len(op.operands) != sum(counts):
        fail(op, f"expected {' + '.join(map(str, counts))} registers of A, B and C, got {len(op.operands)}")
    values, operands = iter(op.operands), list[KernelOperand]()
    for count in counts:
        operands.append([kernel.held(next(values)) for _ in range(count)])
    inputs, rounding = "" if a == "f16" else f".{a}.{a}", ".rn" if a == "f64" else ""
    bits = ".xor.popc" if a == "b1" else ""
    result = kernel.fresh(op.results[0].type)
    kernel.emit(f"wmma.mma{bits}.sync.aligned.{'.'.join(layouts)}.{shape}{rounding}.{d}{inputs}.{d}", result, *operands)
    kernel.give(op, *result)


def _product_of_warpgroup(kernel: LlvmKernel, op: WgmmaMmaAsyncOp) -> None:
    """The sums stay in their registers: those of `inouts` are written."""
    types = types_of(op.inouts.type)
    sums: Words = []
    for type, word in zip(types, kernel.words(op.inouts), strict=True):
        if isinstance(word, str):
            register = kernel.register(type)
            kernel.emit(f"mov.{type}", register, word)
            word = register
        sums.append(word)
    a, b, d = (spelled(kind) for kind in (op.typeA, op.typeB, op.typeD))
    clamped = ".satfinite" if spelled(op.satfinite) == "satfinite" else ""
    constants = ["1" if spelled(op.scaleD) == "one" else "0"]
    if d != "s32":
        constants += ["-1" if spelled(each) == "neg" else "1" for each in (op.scaleA, op.scaleB)]
    if a in ("f16", "bf16"):
        constants += [str(int(spelled(op.layoutA) == "col")), str(int(spelled(op.layoutB) == "row"))]
    descriptors = [kernel.held(each) for each in (op.descriptorA, op.descriptorB)]
    kernel.emit(f"wgmma.mma_async.sync.aligned.{op.shape}{clamped}.{d}.{a}.{b}", sums, *descriptors, *constants)
    kernel.give(op, *sums)
