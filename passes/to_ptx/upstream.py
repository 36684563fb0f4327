"""Operations of upstream: exchanges, reductions, atomics, products by `wmma`; blocks, assertions and output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from xdsl.dialects import affine, arith, cf, gpu
from xdsl.dialects.builtin import IndexType, f32, i1, i32
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind

from ...dialect.isa import wmma
from ...dialect.isa.form import ELEMENT_TYPES, ElementType, Shape
from ...dialect.layouts.layout import LANES
from ...dialect.mlir.affine import without_symbols
from ...dialect.mlir.arithmetic import INDEX
from ...dialect.mlir.forall import DelinearizeIndexOp, LinearizeIndexOp
from ...dialect.mlir.gpu_carried import (
    HOST,
    AllReduceOp,
    MmaMatrixType,
    PrintfOp,
    ShuffleOp,
    SubgroupMmaComputeOp,
    SubgroupMmaConstantMatrixOp,
    SubgroupMmaElementwiseOp,
    SubgroupMmaLoadMatrixOp,
    SubgroupMmaStoreMatrixOp,
    SubgroupReduceOp,
)
from ...dialect.mlir.upstream import ATOMIC_KINDS, AtomicRMWOp
from ...dialect.ptx.ops import FuncOp, VariableAttr
from ...dialect.ptx.text.syntax import Symbol, Variable
from ...dialect.warp.attributes import enclosing, type_name
from ..diagnostics import fail
from ..patterns import evaluated
from .addressing import ALIGNMENT
from .control_flow import assign, lower_as, values_of, variable_of
from .elements import Elements, HeldElement, ptx_type_of
from .emitter import At, Both, VirtualRegister
from .epilogue import ElementPacking
from .fragments import Fragment
from .kernel import KernelLowering, lowers
from .llvm_kernel import bits_of
from .memory_views import place_of
from .scalars import Scalars
from .thread_code import ARITH, combining, give, load_number, number_of, store_number


def _apply_map(lowering: KernelLowering, op: Any) -> None:
    """Lowers an operation whose results a map gives of its operands. Dividends are assumed to be at least 0, as indices
    are."""
    operands = lowering.indices(op.operands)
    by = {kind: partial(compute, lowering.scalars) for kind, compute in _AFFINE.items()}
    for result, expr in zip(op.results, without_symbols(op.map.data), strict=True):
        for each in expr.dfs():
            unknown = isinstance(each, AffineBinaryOpExpr) and each.kind not in _AFFINE
            if unknown or (isinstance(each, AffineBinaryOpExpr) and each.kind not in _SUMS and "-" in str(each.lhs)):
                fail(op, f"{op.name} is not lowered with {each}")
        lowering.values[result] = evaluated(expr, operands.__getitem__, by)


for _kind in (affine.ApplyOp, DelinearizeIndexOp, LinearizeIndexOp):
    lowers(_kind)(_apply_map)

_SUMS = {AffineBinaryOpKind.Add: Scalars.add, AffineBinaryOpKind.Mul: Scalars.multiply}
_AFFINE = _SUMS | {AffineBinaryOpKind.FloorDiv: Scalars.quotient, AffineBinaryOpKind.Mod: Scalars.remainder}


# Exchanges and reductions.


def _bits(lowering: KernelLowering, op: Operation, value: SSAValue) -> VirtualRegister:
    """A number in a register of 32 bits as its bits."""
    if ptx_type_of(value.type) not in ("f32", "b32"):
        fail(op, f"{op.name} is lowered for numbers of up to 32 bits, got {value.type}")
    return lowering.emitter.compute("mov.b32", number_of(lowering, value).word, type="b32")


def _number(lowering: KernelLowering, kind: Attribute, bits: VirtualRegister) -> HeldElement:
    return HeldElement(lowering.emitter.compute("mov.b32", bits, type=ptx_type_of(kind)))


@lowers(ShuffleOp)
def _shuffle(lowering: KernelLowering, op: Any) -> None:
    """Within segments of `width` lanes: the last operand has the bits that lanes of a segment share, and the lane
    beyond which nothing is taken, the first for `up`. A warp that is not whole is one segment, of any width."""
    emitter, s, mode = lowering.emitter, lowering.scalars, op.mode.word.data
    width, full = lowering.scalar(op.width), lowering.threads >= LANES
    if width != LANES and lowering.kernel.known_block_size is None:
        fail(op, f"expected {op.name} of all {LANES} lanes, or gpu.known_block_size on the kernel")
    shared = s.multiply(s.subtract(LANES, width), 1 << 8) if full else 0
    clamp = shared if mode == "up" else s.add(shared, LANES - 1) if full else s.subtract(width, 1)
    moved, valid = emitter.register("b32"), emitter.register("pred")
    opcode = f"shfl.sync.{'bfly' if mode == 'xor' else mode}.b32"
    source, offset = _bits(lowering, op, op.value), lowering.scalar(op.offset)
    emitter.emit(opcode, Both(moved, valid), source, offset, clamp, (1 << min(LANES, lowering.threads)) - 1)
    give(lowering, op.shuffleResult, _number(lowering, op.value.type, moved))
    lowering.values[op.valid] = valid


@lowers(SubgroupReduceOp)
def _reduce(lowering: KernelLowering, op: Any) -> None:
    """Pairs of lanes, then pairs of pairs: every lane has the result, in the same order of operations."""
    kind, emitter = op.value.type, lowering.emitter
    size = LANES if op.cluster_size is None else op.cluster_size.value.data
    stride = op.cluster_stride.value.data
    if size * stride > LANES or size & (size - 1) or stride & (stride - 1):
        fail(op, f"expected powers of two lanes within a warp, got {size} that are {stride} apart")
    combiner = combining(op, op.op.word.data, kind)
    elements = Elements(emitter, lowering.target)
    value = _number(lowering, kind, _bits(lowering, op, op.value))
    distance = stride
    while distance < size * stride:
        bits = emitter.compute("mov.b32", value.word, type="b32")
        other = emitter.compute("shfl.sync.bfly.b32", bits, distance, LANES - 1, 0xFFFFFFFF)
        value = elements.rounded(elements.lower(combiner, [value, _number(lowering, kind, other)]))
        distance *= 2
    give(lowering, op.result, value)


@lowers(AllReduceOp)
def _reduce_all(lowering: KernelLowering, op: Any) -> None:
    """Reduces over a CTA by halves: each thread of the lower half takes in a value of the upper, until one is left."""
    kind, emitter, scalars = op.value.type, lowering.emitter, lowering.scalars
    size = bits_of(kind) // 8
    if not size:
        fail(op, f"{op.name} is lowered for numbers of whole bytes, got {kind}")
    name = f"{lowering.kernel.sym_name.data}_reduced_{len(lowering.variables)}"
    lowering.variables[name] = Variable("shared", "b8", name, count=lowering.threads * size, align=ALIGNMENT)
    first = emitter.pure("mov.u32", Symbol(name))
    own = lowering.addressing.settle(scalars.add(first, scalars.multiply(lowering.thread, size)), 0)
    store_number(lowering, op, kind, number_of(lowering, op.value), "shared", own)
    left = lowering.threads
    while left > 1:
        half = 1 << (left - 1).bit_length() - 1
        end = emitter.fresh_label("reduced")
        emitter.emit("bar.sync", 0)
        with emitter.loop():  # which has the predicate too, so that it is not kept for the next reduction
            takes = scalars.compare("lt", lowering.thread, left - half)
            emitter.branch(end, unless=takes if isinstance(takes, VirtualRegister) else None)
            lower, upper = (load_number(lowering, kind, "shared", at) for at in (own, own.behind(half * size)))
            store_number(lowering, op, kind, _combined(lowering, op, lower, upper), "shared", own)
            emitter.label(end)
        left = half
    emitter.emit("bar.sync", 0)
    give(lowering, op.result, load_number(lowering, kind, "shared", At(first)))
    emitter.emit("bar.sync", 0)


def _combined(lowering: KernelLowering, op: Any, one: HeldElement, other: HeldElement) -> HeldElement:
    """What two numbers become, by the operation or by the body."""
    if op.op is not None and not op.body.blocks:
        combiner = combining(op, op.op.word.data, op.value.type)
        return Elements(lowering.emitter, lowering.target).lower(combiner, [one, other])
    block = op.body.blocks[0] if op.op is None and len(op.body.blocks) == 1 else None
    if block is None or [a.type for a in block.args] != [op.value.type] * 2:
        fail(op, "expected the name of an operation, or a body of one block that takes two numbers")
    for argument, number in zip(block.args, (one, other), strict=True):
        give(lowering, argument, number)
    lowering.block(block)
    if block.last_op is None or len(block.last_op.operands) != 1:
        fail(op, "expected a body that yields one number")
    return number_of(lowering, block.last_op.operands[0])


lowers(next(op for op in HOST if op.name == "gpu.yield"))(lambda lowering, op: None)


# Products by `wmma`, whose fragments are opaque.

ACROSS = {16: 16, 8: 32, 32: 8}
"""N by M, and M by N, of the shapes with K = 16."""

NARROW_K = {"tf32": Shape(16, 16, 8), "f64": Shape(8, 8, 4)}
"""The one shape of some types."""


def _type(op: Operation, kind: MmaMatrixType) -> ElementType:
    """The element type of a matrix in PTX: f32 is multiplied as tf32."""
    name = type_name(kind.matrix.element_type)
    multiplied = kind.operand.data != "COp"
    names = {"f32": "tf32" if multiplied else "f32", "si8": "s8", "ui8": "u8", "i8": "s8", "i32": "s32"}
    element = ELEMENT_TYPES.get(names.get(name, name))
    if element is None:
        fail(op, f"wmma has no matrices of {name}")
    return element


def _shape(op: Operation, kind: MmaMatrixType) -> Shape:
    """The shape of the products that a matrix is an operand of."""
    element, (rows, columns) = _type(op, kind), kind.matrix.get_shape()
    shape = NARROW_K.get(element.name)
    if shape is None:
        m, n = {"AOp": (rows, ACROSS.get(rows, 0)), "BOp": (ACROSS.get(columns, 0), columns)}.get(
            kind.operand.data, (rows, columns)
        )
        shape = Shape(m, n, 16)
    if kind.operand.data == "COp" and (rows, columns) == (16, 16):
        return NARROW_K["tf32"] if element.name == "f32" and _multiplies_tf32(op) else shape
    role = kind.operand.data[0].lower()
    if wmma.extent(shape, role) != (rows, columns):
        fail(op, f"wmma has no operand {role.upper()} of {rows} x {columns} in {element.name}")
    return shape


def _multiplies_tf32(op: Operation) -> bool:
    """Whether the kernel around an operation multiplies f32, whose sums are then those of another shape."""
    kernel = next(around for around in enclosing(op) if isinstance(around, gpu.FuncOp))
    return any(
        type_name(each.operands[0].type.matrix.element_type) == "f32"
        for each in kernel.walk()
        if isinstance(each, SubgroupMmaComputeOp) and isinstance(each.operands[0].type, MmaMatrixType)
    )


def _registers(lowering: KernelLowering, op: Operation, kind: MmaMatrixType) -> Fragment:
    element, role = _type(op, kind), kind.operand.data[0].lower()
    count = wmma.registers(_shape(op, kind), role, element)
    register = element.name if element.name in ("f32", "f64") else "b32"
    return lowering.emitter.registers(register, count)


@lowers(SubgroupMmaLoadMatrixOp)
def _load(lowering: KernelLowering, op: Any) -> None:
    kind = op.res.type
    role, layout = kind.operand.data[0].lower(), "row" if op.transpose is None else "col"
    space, place = place_of(lowering, op, op.srcMemref, lowering.indices(op.indices))
    registers = _registers(lowering, op, kind)
    opcode = f"wmma.load.{role}.sync.aligned.{layout}.{_shape(op, kind)}.{space}.{_type(op, kind).name}"
    lowering.emitter.emit(opcode, registers, place, op.leadDimension.value.data)
    lowering.values[op.res] = registers


@lowers(SubgroupMmaStoreMatrixOp)
def _store(lowering: KernelLowering, op: Any) -> None:
    kind = op.src.type
    layout = "row" if op.transpose is None else "col"
    if not isinstance(kind, MmaMatrixType):
        fail(op, f"expected a matrix, got {kind}")
    space, place = place_of(lowering, op, op.dstMemref, lowering.indices(op.indices))
    opcode = f"wmma.store.d.sync.aligned.{layout}.{_shape(op, kind)}.{space}.{_type(op, kind).name}"
    lowering.emitter.emit(opcode, place, lowering.fragment(op.src), op.leadDimension.value.data)


@lowers(SubgroupMmaComputeOp)
def _compute(lowering: KernelLowering, op: Any) -> None:
    kinds = [value.type for value in op.operands]
    a, b, c = (kind for kind in kinds if isinstance(kind, MmaMatrixType))
    layouts = ("row" if word is None else "col" for word in (op.a_transpose, op.b_transpose))
    shape, element, total = _shape(op, a), _type(op, a).name, _type(op, c).name
    inputs = "" if element == "f16" else f".{element}.{_type(op, b).name}"
    rounding = ".rn" if element == "f64" else ""
    clamped = ".satfinite" if total == "s32" else ""
    opcode = f"wmma.mma.sync.aligned.{'.'.join(layouts)}.{shape}{rounding}.{total}{inputs}.{total}{clamped}"
    result = _registers(lowering, op, op.res.type)
    lowering.emitter.emit(opcode, result, *(lowering.fragment(value) for value in op.operands))
    lowering.values[op.res] = result


@lowers(SubgroupMmaConstantMatrixOp)
def _constant(lowering: KernelLowering, op: Any) -> None:
    kind = op.res.type.matrix.element_type
    registers = _registers(lowering, op, op.res.type)
    packing = ElementPacking(lowering)
    each = max(1, 32 // _type(op, op.res.type).bits)
    number = number_of(lowering, op.value)
    lowering.values[op.res] = [packing.pack(kind, [number] * each) for _ in registers]


RENAMED = {"maxf": "maximumf", "minf": "minimumf", "negatef": "negf", "divs": "divsi", "divu": "divui",
           "negates": "subi"}  # fmt: skip
"""What `arith` calls operations on elements, where it is another word; `negates` subtracts from zero."""


@lowers(SubgroupMmaElementwiseOp)
def _elementwise(lowering: KernelLowering, op: Any) -> None:
    word: str = op.opType.word.data
    if (scalar_op := ARITH.get(RENAMED.get(word, word))) is None:
        fail(op, f"{op.name} {word} is not lowered")
    packing, kinds = ElementPacking(lowering), [_matrix(op, value) for value in (*op.args, op.res)]
    *sources, result = (kind.matrix.element_type for kind in kinds)
    zero = [HeldElement(0)] if word == "negates" else []
    sources += sources if zero else []
    scalar = scalar_op.create(operands=Block(arg_types=sources).args, result_types=[result])
    operands = [packing.every(_type(op, k), lowering.fragment(v)) for v, k in zip(op.args, kinds, strict=False)]
    computed = [packing.elements.lower(scalar, [*zero, *of_one]) for of_one in zip(*operands, strict=True)]
    lowering.values[op.res] = packing.pack_all(result, computed)


def _matrix(op: Operation, value: SSAValue) -> MmaMatrixType:
    if not isinstance(value.type, MmaMatrixType):
        fail(op, f"expected a matrix, got {value.type}")
    return value.type


# Elements of memory that threads change at once.

ATOMICS = {
    "addi": "add.u32", "maxs": "max.s32", "maxu": "max.u32", "mins": "min.s32", "minu": "min.u32", "ori": "or.b32",
    "andi": "and.b32", "xori": "xor.b32", "addf": "add.f32", "assign": "exch.b32",
}  # fmt: skip
"""What `atom` does, by the word of `memref.atomic_rmw`."""


@lowers(AtomicRMWOp)
def _change(lowering: KernelLowering, op: Any) -> None:
    number: int = op.kind.value.data
    word, kind = ATOMIC_KINDS[number], op.result.type
    done = ATOMICS.get(word)
    if done is None or kind not in (i32, f32):
        fail(op, f"memref.atomic_rmw is lowered for i32 and f32, and {', '.join(ATOMICS)}; got {word} of {kind}")
    space, place = place_of(lowering, op, op.memref, lowering.indices(op.indices))
    (old,) = lowering.emitter.registers("f32" if kind == f32 else "b32", 1)
    value = number_of(lowering, op.value).word
    lowering.emitter.emit(f"atom.acq_rel.sys.{space}.{done}", old, place, value)
    give(lowering, op.result, HeldElement(old))


# Bodies of several blocks, and what threads ask of the driver: `cf.br`, `cf.cond_br`, `cf.assert`, `gpu.printf`.


@lowers(gpu.FuncOp)
def _blocks(lowering: KernelLowering, kernel: gpu.FuncOp) -> None:
    """Emits a body of several blocks. Each has a label and registers for its arguments, which branches set. Each block
    is a loop level of its own inside a common one, so that hoisted code precedes the first block."""
    emitter, blocks = lowering.emitter, list(kernel.body.blocks)
    lowering.labels = {block: emitter.fresh_label("block") for block in blocks}
    with emitter.loop(), emitter.loop():
        lowering.values |= {a: variable_of(lowering, a) for block in blocks[1:] for a in block.args}
    with emitter.loop():
        for number, block in enumerate(blocks):
            if number:
                emitter.label(lowering.labels[block])
            with emitter.loop():
                lowering.block(block)


def _go(lowering: KernelLowering, op: Operation, target: Block, values: Sequence[SSAValue]) -> None:
    """Sets the arguments of a block, all at once, and goes there."""
    if target not in lowering.labels:
        fail(op, f"{op.name} is lowered between the blocks of a kernel")
    assign(lowering, [lowering.values[argument] for argument in target.args], values_of(lowering, values))
    lowering.emitter.branch(lowering.labels[target])


@lowers(cf.BranchOp)
def _branch(lowering: KernelLowering, op: cf.BranchOp) -> None:
    _go(lowering, op, op.successor, op.arguments)


@lowers(cf.ConditionalBranchOp)
def _branch_if(lowering: KernelLowering, op: cf.ConditionalBranchOp) -> None:
    taken, emitter = lowering.predicate(op.cond), lowering.emitter
    if not isinstance(taken, VirtualRegister):
        target = (op.then_block, op.then_arguments) if taken else (op.else_block, op.else_arguments)
        _go(lowering, op, *target)
        return
    otherwise = emitter.fresh_label("otherwise")
    emitter.branch(otherwise, unless=taken)
    _go(lowering, op, op.then_block, op.then_arguments)
    emitter.label(otherwise)
    _go(lowering, op, op.else_block, op.else_arguments)


@lowers(cf.AssertOp)
def _assert(lowering: KernelLowering, op: cf.AssertOp) -> None:
    """Stops the kernel where a condition does not hold."""
    holds, emitter = lowering.predicate(op.arg), lowering.emitter
    if isinstance(holds, VirtualRegister):
        with emitter.skipping("holds", unless=emitter.compute("not.pred", holds)):
            emitter.emit("trap")
    elif not holds:
        emitter.emit("trap")


# Text that threads print. Source: PTX Writer's Guide to Interoperability, 4, System Calls.

VPRINTF = FuncOp(
    "vprintf", None, entry=False, linking="extern", returns=[VariableAttr.of("b32", "printed")],
    parameters=[VariableAttr.of("b64", "format"), VariableAttr.of("b64", "arguments")],
)  # fmt: skip
"""What a text asks of the driver: its format and its arguments are addresses."""


@lowers(PrintfOp)
def _print(lowering: KernelLowering, op: Any) -> None:
    """Stores the arguments in memory of the thread, each at a multiple of its size, and calls `vprintf`."""
    emitter, function = lowering.emitter, lowering.kernel.sym_name.data
    number, text = len(lowering.own_variables), op.format.data.encode() + b"\0"
    name, arguments = f"{function}_format_{number}", f"{function}_printed_{number}"
    values = [_argument(lowering, op, value) for value in op.args]
    places, end = list[int](), 0
    for size, _ in values:
        places.append(-(-end // size) * size)
        end = places[-1] + size
    init = f"{{{', '.join(map(str, text))}}}"
    lowering.variables[name] = Variable("global", "b8", name, count=len(text), align=1, init=init)
    lowering.own_variables.append(Variable("local", "b8", arguments, count=max(end, 8), align=8))
    lowering.called[VPRINTF.sym_name.data] = VPRINTF.clone()
    own = emitter.compute("mov.b64", Symbol(arguments))
    for (_, register), place in zip(values, places, strict=True):
        emitter.store("local", [register], At(own, place))
    addresses = (
        emitter.compute("cvta.global.u64", emitter.compute("mov.b64", Symbol(name))),
        emitter.compute("cvta.local.u64", own),
    )
    emitter.emit("call.uni", (emitter.register("b32"),), Symbol(VPRINTF.sym_name.data), addresses)


def _argument(lowering: KernelLowering, op: Operation, value: SSAValue) -> tuple[int, VirtualRegister]:
    """The size of an argument and its register. Floats are printed as f64, small integers as i32."""
    emitter, kind = lowering.emitter, value.type
    word = _word(lowering, kind, number_of(lowering, value).word)
    match type_name(kind):
        case "f32" | "f16" | "bf16":
            return 8, emitter.compute("cvt.f64.f32", word)
        case "f64" | "i64":
            return 8, word
        case "i1":
            return 4, emitter.compute("selp.b32", 1, 0, word)
        case "index":
            return 8, emitter.compute("cvt.s64.s32", word, type="b64")
        case "i8" | "i16" | "i32":
            return 4, word
        case _:
            fail(op, f"{op.name} prints numbers, got {kind}")


def _word(lowering: KernelLowering, kind: Attribute, value: object) -> VirtualRegister:
    if isinstance(value, VirtualRegister):
        return value
    type = "b32" if kind == IndexType() else "pred" if kind == i1 else ptx_type_of(kind)
    return lowering.emitter.compute(f"mov.{type}", value)  # pyright: ignore[reportArgumentType]


# Arithmetic on indices.


def _of_index(kind: type[Operation], same: type[Operation]) -> None:
    def handle(lowering: KernelLowering, op: Operation) -> None:
        lower_as(lowering, op, same)

    lowers(kind)(handle)


_OTHERS: Mapping[str, type[Operation]] = {"constant": arith.ConstantOp, "casts": arith.IndexCastOp}

for _kind in INDEX.operations:
    _name = _kind.name.removeprefix("index.")
    _same = _OTHERS.get(_name, ARITH.get(f"{_name}i"))
    if _same is not None and not _name.startswith(("ceil", "floor")):  # which are not lowered on indices
        _of_index(_kind, _same)
