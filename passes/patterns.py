"""Rewrite patterns applied to each operation once, with errors that users read; passes that are lists of patterns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, ClassVar, TypeAlias, TypeVar, cast, get_type_hints

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseArrayBase,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    UnknownLoc,
)
from xdsl.dialects.gpu import DimensionAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr, AffineDimExpr, AffineExpr
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter

from ..dialect.mlir.gpu import NumberAlong, X
from ..dialect.warp.attributes import memory_of
from ..dialect.warp.elements import shape_of
from ..dialect.warp.views import MatrixOp

_UNSEEN = Counter[str]()
"""Where patterns are counted that nobody asks for."""

_COUNTS: ContextVar[Counter[str]] = ContextVar("counts", default=_UNSEEN)


@contextmanager
def counted(counts: Counter[str]) -> Generator[None]:
    """Counts the operations that each pattern rewrites, by the pattern's name."""
    token = _COUNTS.set(counts)
    try:
        yield
    finally:
        _COUNTS.reset(token)


def all_operands(op: Operation) -> set[SSAValue]:
    """The operands of an operation and of those in its regions."""
    return {operand for inner in op.walk() for operand in inner.operands}


def captured(op: Operation) -> list[SSAValue]:
    """The values from outside of an operation that its regions use, in the order of their first use."""
    used = dict.fromkeys(value for region in op.regions for inner in region.walk() for value in inner.operands)
    return [value for value in used if not op.is_ancestor(value.owner)]


def operations_between(first: Operation, last: Operation) -> list[Operation] | None:
    """The operations that stand between two of a block; None if the second does not follow the first."""
    between, op = list[Operation](), first.next_op
    while op is not None and op is not last:
        between.append(op)
        op = op.next_op
    return None if op is None else between


def dependences(op: Operation, between: Sequence[Operation]) -> list[Operation]:
    """An operation and the operations in `between` that it depends on, in order."""
    needed = {op}
    for one in reversed(between):
        if any(use.operation in needed for result in one.results for use in result.uses):
            needed.add(one)
    return [one for one in between if one in needed]


def computed_from(
    values: Iterable[SSAValue], until: tuple[type[Operation], ...] = (), leaves: Container[SSAValue] = ()
) -> dict[SSAValue, None]:
    """All values from which values are computed, these included. It stops at results of operations of some types, and
    at values that are leaves."""
    every, wanted = dict[SSAValue, None](), list(values)
    while wanted:
        value = wanted.pop()
        if value not in every:
            every[value] = None
            owner = value.owner
            ends = value in leaves or isinstance(owner, until)
            wanted += owner.operands if isinstance(owner, Operation) and not ends else ()
    return every


def operations_of(root: Operation) -> list[Operation]:
    """An operation and those in its regions, in order, as `walk` yields them, which takes four times as long."""
    ops = [root]
    for block in [block for region in root.regions for block in region.blocks]:
        op = block.first_op
        while op is not None:
            ops += operations_of(op) if op.regions else (op,)
            op = op.next_op
    return ops


def is_unused(op: Operation) -> bool:
    """Whether an operation has results, and nobody uses them."""
    return bool(op.results) and not any(result.uses for result in op.results)


def erase_unused(ops: Iterable[Operation]) -> None:
    """Erases those whose results nobody uses, one after the other."""
    for op in ops:
        if is_unused(op):
            Rewriter.erase_op(op)


class LocatedRewriter(PatternRewriter):
    """A rewriter, or a builder in front of an operation, that gives what it inserts the location of this operation,
    unless it has one."""

    def __init__(self, op: Operation, before: Operation | None = None) -> None:
        super().__init__(before or op)
        self.location = op.location

    def handle_operation_insertion(self, op: Operation) -> None:
        super().handle_operation_insertion(op)
        if isinstance(op.location, UnknownLoc):
            op.location = self.location


PatternT = TypeVar("PatternT", bound=RewritePattern)
MatchedT = TypeVar("MatchedT", bound=Operation)

Pattern: TypeAlias = RewritePattern | type[RewritePattern]
"""A pattern, or a class of which one is made for each time that it is applied to operations."""

_KINDS: dict[object, Callable[[], Any]] = {}
"""The types of the operations that patterns match, by the method that does."""


def op_type_rewrite_pattern(
    rewrite: Callable[[PatternT, MatchedT, PatternRewriter], None],
) -> Callable[[PatternT, Operation, PatternRewriter], None]:
    """xDSL's decorator of a pattern for operations of a type, or of several, which its first annotation names. It is
    read when the pattern is first applied, and `apply_patterns` calls the pattern for these operations alone."""

    kinds: Callable[[], Any] = cache(lambda: next(iter(get_type_hints(rewrite).values())))

    def match_and_rewrite(self: PatternT, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, kinds()):
            rewrite(self, cast("MatchedT", op), rewriter)

    _KINDS[match_and_rewrite] = kinds
    return match_and_rewrite


def rewrite_pattern(rewrite: Callable[[MatchedT, PatternRewriter], None]) -> RewritePattern:
    """A pattern that is a function. `fold_copy` is the pattern `FoldCopy` of strategies and of counts."""

    @wraps(rewrite)
    def method(self: RewritePattern, op: MatchedT, rewriter: PatternRewriter) -> None:
        rewrite(op, rewriter)

    name = "".join(map(str.capitalize, rewrite.__name__.split("_")))
    fields = {"match_and_rewrite": op_type_rewrite_pattern(method), "__module__": rewrite.__module__}
    return type(name, (RewritePattern,), {**fields, "__doc__": rewrite.__doc__})()


def _may_match(pattern: RewritePattern, kind: type[Operation]) -> bool:
    """Whether a pattern is for operations of a type."""
    kinds = _KINDS.get(type(pattern).match_and_rewrite)
    return kinds is None or issubclass(kind, kinds())


def apply_patterns(
    patterns: Sequence[Pattern], root: Operation, *, reverse: bool = False, itself: bool = False
) -> bool:
    """Applies patterns to the operations below `root`, and to `root` if `itself`: for each operation the first pattern
    that rewrites it. Operations that patterns create are not visited. Returns whether any was rewritten. Exceptions of
    patterns propagate unchanged, whereas xDSL's walker replaces them by the printed IR."""
    rewritten, counts = False, _COUNTS.get()
    made = [each() if isinstance(each, type) else each for each in patterns]
    matching: dict[type[Operation], list[RewritePattern]] = {}
    for op in list(root.walk(reverse=True)) if reverse else operations_of(root):
        if (kind := type(op)) not in matching:
            matching[kind] = [pattern for pattern in made if _may_match(pattern, kind)]
        if not matching[kind] or op.parent_block() is None or (op is root and not itself):
            continue
        rewriter = LocatedRewriter(op)
        for pattern in matching[kind]:
            pattern.match_and_rewrite(op, rewriter)
            if rewriter.has_done_action or op.parent is None:
                counts[type(pattern).__name__] += 1
                rewritten = True
                break
    return rewritten


class PatternPass(ModulePass):
    """A pass that applies its patterns to each operation of a module, as `apply_patterns` does."""

    patterns: ClassVar[tuple[Pattern, ...]]

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns(self.patterns, op)


# Index arithmetic while building IR: constants stay numbers until an operation needs them as values.


Index = int | SSAValue
Branch: TypeAlias = Callable[["IndexBuilder"], Sequence[SSAValue]]
OpT = TypeVar("OpT", bound=Operation)
ValueT = TypeVar("ValueT")


class IndexBuilder:
    """Emits `arith` on `index` at the builder's insertion point, folding what is constant.

    Constants are materialised once, at `constants`' insertion point, which must dominate all uses.
    """

    def __init__(self, place: Builder | Operation, constants: Builder | None = None) -> None:
        """`place` is a builder, or the operation to insert before."""
        self.builder = place if isinstance(place, Builder) else LocatedRewriter(place)
        self.constants = constants or self.builder
        self._constants: dict[int, SSAValue] = {}

    def at(self, builder: Builder) -> IndexBuilder:
        """The same constants, another insertion point."""
        inner = IndexBuilder(builder, self.constants)
        inner._constants = self._constants
        return inner

    def within(self, block: Block) -> IndexBuilder:
        """The same constants, at the end of a block."""
        return self.at(Builder(InsertPoint.at_end(block)))

    def before(self, op: Operation) -> IndexBuilder:
        """The same constants, before an operation."""
        return self.at(Builder(InsertPoint.before(op)))

    def after(self, op: Operation) -> IndexBuilder:
        """The same constants, after an operation."""
        return self.at(Builder(InsertPoint.after(op)))

    def insert(self, op: OpT) -> OpT:
        """Inserts an operation at the insertion point."""
        return self.builder.insert(op)

    def number(self, kind: type[NumberAlong], along: DimensionAttr = X) -> SSAValue:
        """The number of a thread, or of a CTA, along a dimension."""
        return self.insert(kind.build(result_types=[IndexType()], properties={"dimension": along})).result

    @contextmanager
    def loop(self, begin: Index, end: Index, step: Index, initial: Sequence[SSAValue] = ()) -> Generator[Turn]:
        """A loop, whose body is filled through its `Turn`. It is inserted when the body is complete."""
        turn = Turn(self, Block(arg_types=[IndexType(), *(value.type for value in initial)]))
        first, last, stride = self.values([begin, end, step])
        yield turn
        turn.index.insert(scf.YieldOp(*turn.handed))
        turn.results = list(self.insert(scf.ForOp(first, last, stride, initial, turn.block)).results)

    @contextmanager
    def where(self, condition: SSAValue) -> Generator[IndexBuilder]:
        """A builder for code that runs where a condition holds. The `scf.if` is inserted at the end of the context."""
        inside = self.within(block := Block())
        yield inside
        inside.insert(scf.YieldOp())
        self.insert(scf.IfOp(condition, [], Region(block)))

    def either(self, condition: SSAValue, yes: Branch, no: Branch) -> list[SSAValue]:
        """What a branch makes where a condition holds, and what another one makes elsewhere."""
        regions, kinds = list[Region](), list[Attribute]()
        for branch in (yes, no):
            inside = self.within(block := Block())
            values = branch(inside)
            inside.insert(scf.YieldOp(*values))
            regions.append(Region(block))
            kinds = [value.type for value in values]
        return list(self.insert(scf.IfOp(condition, kinds, regions[0], regions[1])).results)

    def compare(self, predicate: str, a: Index, b: Index) -> SSAValue:
        """Whether indices compare so, such as "slt"."""
        return self.insert(arith.CmpiOp(self.value(a), self.value(b), predicate)).result

    def again(self, value: SSAValue, mapped: dict[SSAValue, SSAValue], inside: Callable[[Operation], bool]) -> SSAValue:
        """Computes a value a second time, at the insertion point.

        Operations that are `inside` are cloned with their operands replaced by those in the mapping, and the results of
        the clones are added to it. Values of other operations are used as they are.
        """
        op = value.owner
        if value in mapped or not isinstance(op, Operation) or not inside(op):
            return mapped.get(value, value)
        new = self.insert(op.clone({operand: self.again(operand, mapped, inside) for operand in op.operands}))
        mapped.update(zip(op.results, new.results, strict=True))
        return mapped[value]

    def value(self, index: Index) -> SSAValue:
        """The index as an SSA value."""
        if not isinstance(index, int):
            return index
        if index not in self._constants:
            self._constants[index] = self.constants.insert(arith.ConstantOp(IntegerAttr(index, IndexType()))).result
        return self._constants[index]

    def values(self, indices: Sequence[Index]) -> list[SSAValue]:
        """Several indices as SSA values."""
        return [self.value(index) for index in indices]

    def folded(self, value: SSAValue) -> Index:
        """A value as an index: a number if it is constant. A constant that precedes the builder's constants is
        reused."""
        number = constant_value(value)
        if number is None:
            return value
        owner, point = value.owner, self.constants.insertion_point
        if number not in self._constants and isinstance(owner, Operation) and _is_before(owner, point):
            self._constants[number] = value
        return number

    def _computed(self, number: Callable[[int, int], int], op: Callable[..., Operation], a: Index, b: Index) -> Index:
        """What an operation computes of indices: a number of two numbers."""
        if isinstance(a, int) and isinstance(b, int):
            return number(a, b)
        return self.insert(op(self.value(a), self.value(b))).results[0]

    def add(self, a: Index, b: Index) -> Index:
        return b if a == 0 else a if b == 0 else self._computed(int.__add__, arith.AddiOp, a, b)

    def sub(self, a: Index, b: Index) -> Index:
        return a if b == 0 else self._computed(int.__sub__, arith.SubiOp, a, b)

    def mul(self, a: Index, factor: Index) -> Index:
        a, factor = (factor, a) if isinstance(a, int) else (a, factor)
        return 0 if factor == 0 else a if factor == 1 else self._computed(int.__mul__, arith.MuliOp, a, factor)

    def ceildiv(self, a: Index, by: int) -> Index:
        """Unsigned quotient, rounded up."""
        return self.div(self.add(a, by - 1), by)

    def dim(self, memory: SSAValue, dimension: int) -> Index:
        """The size of a dimension of memory, of a matrix of it, or of a tensor."""
        if isinstance(memory.owner, MatrixOp):
            view = memory.owner
            if view.part and dimension == len(view.dimensions_kept):
                return self.folded(view.part[1])
            memory, dimension = view.memory, (*view.dimensions_kept, *view.dimensions)[dimension] or 0
        size = shape[dimension] if (shape := shape_of(memory)) else -1
        if size >= 0:
            return size
        if isinstance(memory.type, MemRefType):
            return self.insert(memref.DimOp(memory, self.value(dimension))).result
        from xdsl.dialects import tensor  # 5 ms, for modules that have tensors

        return self.insert(tensor.DimOp(memory, self.value(dimension))).result

    def alloc(self, kind: MemRefType) -> SSAValue:
        """New memory of a type of known sizes."""
        return self.insert(memref.AllocOp([], [], kind)).memref

    def unknown_sizes(self, value: SSAValue) -> list[SSAValue]:
        """The sizes of memory, or of a tensor, that its type does not tell."""
        sizes = (self.dim(value, dimension) for dimension in range(len(shape_of(value))))
        return [size for size in sizes if not isinstance(size, int)]

    def div(self, a: Index, by: Index) -> Index:
        """Unsigned quotient."""
        return a if by == 1 else self._computed(int.__floordiv__, arith.DivUIOp, a, by)

    def rem(self, a: Index, by: Index) -> Index:
        """Unsigned remainder."""
        return 0 if by == 1 else self._computed(int.__mod__, arith.RemUIOp, a, by)

    def unflattened(self, sizes: Sequence[Index], number: Index) -> list[Index]:
        """The index of each of several loops, of these sizes, in the turn of a number; the last loop is the innermost
        one."""
        indices, rest = list[Index](), number
        for size in reversed(sizes[1:]):
            indices.insert(0, self.rem(rest, size))
            rest = self.div(rest, size)
        return [rest, *indices] if sizes else []

    def evaluated(self, expr: AffineExpr, loop: Callable[[int], Index]) -> Index:
        """An expression of a map, of indices that are not negative; `loop` gives the index of a loop."""
        kind = AffineBinaryOpKind
        by = {kind.Add: self.add, kind.Mul: self.mul, kind.FloorDiv: self.div, kind.Mod: self.rem}
        by[kind.CeilDiv] = lambda a, b: self.div(self.add(a, self.sub(b, 1)), b)
        return evaluated(expr, loop, by)

    def xor(self, a: Index, b: Index) -> Index:
        """Bitwise exclusive or."""
        return b if a == 0 else a if b == 0 else self._computed(int.__xor__, arith.XOrIOp, a, b)

    def minimum(self, a: Index, b: Index, *, signed: bool = False) -> Index:
        """Unsigned minimum, or a signed one."""
        return self._computed(min, arith.MinSIOp if signed else arith.MinUIOp, a, b)

    def wrap(self, a: Index, by: int) -> Index:
        """a if a is not `by`, else 0: the next stage of a ring."""
        return a % by if isinstance(a, int) else self.select("eq", a, by, 0, a)

    def from_zero(self, a: Index) -> Index:
        """The index, or 0 if it is below."""
        return self.sub(a, self.minimum(a, 0, signed=True))

    def select(self, predicate: str, a: Index, b: Index, yes: Index, no: Index) -> Index:
        """`yes` where a and b compare so, such as "slt", else `no`."""
        return self.insert(arith.SelectOp(self.compare(predicate, a, b), self.value(yes), self.value(no))).result


def evaluated(
    expr: AffineExpr, dimension: Callable[[int], ValueT], by: Mapping[AffineBinaryOpKind, Callable[..., ValueT]]
) -> ValueT | int:
    """An expression of a map: of what stands for each dimension, `by` what computes each kind of operation. Raises
    TypeError for an expression of symbols, or of other kinds of operations."""
    if isinstance(expr, AffineDimExpr):
        return dimension(expr.position)
    if isinstance(expr, AffineConstantExpr):
        return expr.value
    if not isinstance(expr, AffineBinaryOpExpr) or expr.kind not in by:
        raise TypeError(f"expected an expression of dimensions, got {expr}")
    return by[expr.kind](*(evaluated(each, dimension, by) for each in (expr.lhs, expr.rhs)))


class Turn:
    """The body of a loop under construction: its counter, the values carried in, and the values carried out. `results`
    are the values after the last iteration."""

    def __init__(self, around: IndexBuilder, block: Block) -> None:
        self.block, self.index = block, around.within(block)
        self.counter, *self.carried = block.args
        self.handed: Sequence[SSAValue] = ()
        self.results: list[SSAValue] = []


def _is_before(op: Operation, point: InsertPoint) -> bool:
    """Whether an operation stands in front of a point, or of an operation that the point is in."""
    block, behind = point.block, point.insert_before
    while block is not None and block is not op.parent:
        behind = block.parent_op()
        block = None if behind is None else behind.parent
    return block is not None and (behind is None or op.is_before_in_block(behind))


def mixed(static: DenseArrayBase[IntegerType], dynamic: Sequence[SSAValue]) -> list[int | SSAValue]:
    """Numbers, with a value in the place of each that is dynamic."""
    values = iter(dynamic)
    return [next(values) if each == DYNAMIC_INDEX else each for each in static.get_values()]


def slice_of(op: Any, number: Callable[[SSAValue], ValueT]) -> Iterator[list[int | ValueT]]:
    """The offsets, the sizes and the strides of a view or a slice, with what stands for each that is dynamic."""
    for what in ("offsets", "sizes", "strides"):
        every = mixed(getattr(op, f"static_{what}"), getattr(op, what))
        yield [each if isinstance(each, int) else number(each) for each in every]


def constant_number(value: SSAValue) -> FloatAttr | IntegerAttr | None:
    """The number that a constant is; None for other values."""
    number = value.owner.value if isinstance(value.owner, arith.ConstantOp) else None
    return number if isinstance(number, FloatAttr | IntegerAttr) else None


def constant_value(value: SSAValue) -> int | None:
    """The value of an integer constant; None for other values."""
    return number.value.data if isinstance(number := constant_number(value), IntegerAttr) else None


def float_value(value: SSAValue) -> float | None:
    """The value of a floating-point constant; None for other values."""
    return number.value.data if isinstance(number := constant_number(value), FloatAttr) else None


@rewrite_pattern
def fold_dimension(op: memref.DimOp, rewriter: PatternRewriter) -> None:
    """Replaces `memref.dim` of an allocation by the size that it was allocated with."""
    number, shape, memory = constant_value(op.index), memory_of(op.source).get_shape(), op.source.owner
    if number is None or not 0 <= number < len(shape) or not isinstance(memory, memref.AllocOp | memref.AllocaOp):
        return
    if shape[number] == DYNAMIC_INDEX:
        rewriter.replace(op, [], [memory.dynamic_sizes[shape[:number].count(DYNAMIC_INDEX)]])
    else:
        rewriter.replace(op, arith.ConstantOp(IntegerAttr(shape[number], IndexType())))
