"""`warp-fold-fill`, and what `warp-fuse-epilogue` fuses: fills and elementwise operations become parts of a product."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import ClassVar, NamedTuple

from xdsl.context import Context
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import MemRefType, ModuleOp, f64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import CopyOp, FillOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import DiagnosticException

from ...dialect.mlir.affine import FIXED, loops_of
from ...dialect.warp.attributes import element_row, memory_of
from ...dialect.warp.elements import IndexOp, M, PointwiseOp, YieldOp, element_type, with_functions, yielded
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operands import OperandForm, drop_forms
from ..diagnostics import chose, message_of, name_of, remark
from ..patterns import LocatedRewriter, all_operands, apply_patterns, constant_number, rewrite_pattern
from .element_expressions import NotFusedError, decline
from .elementwise import Elementwise, check_unshared, may_share, read_elementwise, roots_of, touched, unshaped
from .operand import VIEWS, drop_unused, lines_of, root, users_of
from .raise_matmul import raise_products


@rewrite_pattern
def fold_fill(op: FillOp, rewriter: PatternRewriter) -> None:
    """Makes a product start from a constant, if its memory is filled with that before."""
    value = constant_number(op.inputs[0])
    product = _folded_into(op, "" if value is not None else "what it fills with is no constant")
    if product is not None:
        chose(op, FoldFillPass.name, "the product starts from it")
        rewriter.replace(product, product.like(start=value), [])
        rewriter.erase(op)


@rewrite_pattern
def fold_copy(op: CopyOp, rewriter: PatternRewriter) -> None:
    """Makes a product start from the source of a copy to its memory."""
    source, copied = op.inputs[0], op.outputs[0]
    within = "it copies within one memory" if root(source) == root(copied) else ""
    reason = f"it copies {source.type} to {copied.type}" if source.type != copied.type else within
    if (product := _folded_into(op, reason)) is None:
        return
    wider = product.d.owner
    if isinstance(wider, memref.ExpandShapeOp) and wider.src == copied:
        source = rewriter.insert(wider.clone({copied: source}), InsertPoint.before(product)).result
    if source.type == product.d.type:
        rewriter.replace(product, product.like(start=source), [])
        rewriter.erase(op)


def _folded_into(op: FillOp | CopyOp, reason: str) -> MatmulOp | None:
    """The product that adds to all of what a fill or a copy writes; None if it may not start from that, and a remark
    that says why."""
    product, memory = op.next_op, op.outputs[0]
    while product is not None and not (isinstance(product, MatmulOp) and _overwrites(product, memory)):
        product = product.next_op
    if not isinstance(product, MatmulOp) or op.results:
        return None
    both = frozenset((op, product))
    folded = Replacement(both, product, frozenset((memory,)), roots_of(op.inputs), frozenset())
    if reason := reason or folded.objection():
        remark(op, FoldFillPass.name, f"it is not folded into the product that adds to what it writes: {reason}")
        return None
    return product


def _overwrites(product: MatmulOp, memory: SSAValue) -> bool:
    """Whether a product adds to all of a memory, and reads it nowhere else."""
    all_of_it = product.c == product.d and unshaped(product.d) == unshaped(memory)
    return all_of_it and root(memory) not in map(root, product.factors)


class FoldFillPass(ModulePass):
    """Folds `linalg.fill` with a constant, or `linalg.copy`, into the product that follows it on the same memref. No
    operation between the two may touch that memory. Products still in `linalg` are raised first."""

    name = "warp-fold-fill"
    needs: ClassVar = ("linalg.*", "linalg.fill")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        apply_patterns([fold_fill], op)
        apply_patterns([fold_copy], op)


# `warp-fuse-epilogue`: elementwise operations on a product's result move into the product.
#
# `D = f(A B, X, ...)` written as a product into a temporary memref (or into D itself) and a `linalg.generic` that
# reads it becomes one `warp.matmul` with an epilogue. Nothing about the values changes: an element of the product is
# still rounded to the temporary's element type before f sees it.
#
# Fusing is legal when nobody can tell that the temporary is never written, and that the product is computed later,
# where the elementwise operation stands:
#
# - the temporary is the operation's own output, or a `memref.alloc` that nothing else uses;
# - the operations in between neither write what the product reads, nor touch the temporary;
# - the output shares no memory with A or B, and only element by element with C and the other inputs.
#
# What is not fused stays as it is; `warploom-opt --remarks` says why.

FUSE = "warp-fuse-epilogue"
"""The pass, as remarks name it."""

BYTE = 8
"""Bits of the widest elements of which two fill no register."""


class Match(NamedTuple):
    """An elementwise operation with the product whose result it reads from `temporary`."""

    product: MatmulOp
    elementwise: Elementwise

    @property
    def temporary(self) -> SSAValue:
        return self.product.d

    @property
    def of_product(self) -> tuple[int, ...]:
        """The inputs of the elementwise operation that are the product's element."""
        return tuple(i for i, value in enumerate(self.elementwise.inputs) if value == self.temporary)

    @property
    def others(self) -> tuple[int, ...]:
        """The other inputs of the operation."""
        inputs = range(len(self.elementwise.inputs))
        return tuple(i for i in inputs if i not in self.of_product and self.elementwise.reads(i))

    def map_of(self, number: int) -> AffineMap:
        """How an input is indexed by the loops of the product."""
        loops = self.product.maps[2]
        along = (loops.results[loop] for loop in loops_of(self.elementwise.maps[number]))
        return AffineMap(loops.num_dims, 0, tuple(along))

    def objection(self) -> str:
        """Why fusing would change what somebody can see: see the module. "" if it would not."""
        product, last, in_place = self.product, self.elementwise.op, self.temporary == self.elementwise.output
        read = [value for value in (*product.factors, product.c, *product.epilogue_operands) if value is not None]
        results = frozenset([self.temporary] if in_place else [])
        fused = Replacement(frozenset((product, last)), last, results, roots_of(read), frozenset())
        if reason := fused.objection():
            return reason
        if self.elementwise.loops != len(product.maps[2].results):
            return "it has other loops than the product's result has dimensions"
        if any(FIXED in loops_of(map_) for map_ in self.elementwise.maps):
            return "it reads one place along a dimension"
        if any(self.map_of(i) != product.maps[2] for i in self.of_product):
            return "it reads the product's result in another order than it is written"
        row, column = (loops_of(product.maps[2]).index(product.maps[2].num_dims + loop) for loop in (-3, -2))
        if lines_of(memory_of(self.elementwise.output), (row, column)) != (row, column):
            return "rows of its output are not contiguous, as those of the product's result are"
        if product not in fused.dead:
            return "others use the product's result too"
        if product.grouped is not None and (product.grouped != M or self.elementwise.indexed or self._selects()):
            return "it is of the sums of groups, asks for indices, or chooses what rows behind the last group have"
        if product.grouped is not None and in_place:
            return "it also updates rows behind the last group, which others read"
        values = [self.elementwise.output, *(self.elementwise.inputs[i] for i in self.others)]
        kinds = [element_type(value) for value in values if isinstance(value.type, MemRefType)]
        rows = {kind: element_row(kind) for kind in kinds}
        if wide := next((kind for kind, row in rows.items() if row is None), None):
            return f"no fragments of {wide} are loaded or stored with a product"
        if product.product_type == f64 and (
            narrow := next((r.mlir for r in rows.values() if r and r.bits <= BYTE), "")
        ):
            return f"a lane holds 2 neighbouring sums of f64, and 2 elements of {narrow} fill no register"
        return "" if self._is_unshared() else "its output shares memory with what the product or it reads"

    def _selects(self) -> bool:
        """Whether results may not depend on the product's: rows behind the last group are not written then."""
        return any(isinstance(op, arith.SelectOp) for op in self.elementwise.body.ops)

    def _is_unshared(self) -> bool:
        """Whether every element is read by all its readers before it is overwritten."""
        product, output = self.product, self.elementwise.output
        if any(root(value) == root(output) for value in product.factors):
            return False
        others = [(product.c, product.maps[2])]
        others += product.placed_operands
        others += [(self.elementwise.inputs[i], self.map_of(i)) for i in self.others]
        return all(
            value is None or root(value) != root(output) or (value == output and map_ == product.maps[2])
            for value, map_ in others
        )


def fuse(matches: Sequence[Match], b: OperandForm | None = None) -> None:
    """Replaces an elementwise operation, and the products whose results it reads, by one product where it stands: of
    several by one of a `b` that has those of all."""
    products, elementwise, first = [match.product for match in matches], matches[0].elementwise, matches[0]
    block = Block(arg_types=[product.product_type for product in products for _ in range(product.products)])
    of_products = {i: number for number, match in enumerate(matches) for i in match.of_product}
    others = {i: (elementwise.inputs[i], first.map_of(i)) for i in first.others if i not in of_products}
    operands = list(dict.fromkeys([*(o for p in products for o in p.placed_operands), *others.values()]))
    arguments, elements = iter(list(block.args)), list[SSAValue]()
    place = {(value, map_): block.insert_arg(element_type(value), len(block.args)) for value, map_ in operands}
    for product in products:
        own = [next(arguments) for _ in range(product.products)]
        taken = [*own, *(place[operand] for operand in product.placed_operands)]
        elements.append(own[0] if product.epilogue is None else inlined(product.epilogue.body, block, taken))
    inputs = {i: elements[number] for i, number in of_products.items()} | {i: place[o] for i, o in others.items()}
    loops = loops_of(first.product.maps[2])
    indices = {loop: IndexOp(loops[loop]) for loop in elementwise.indexed}
    block.add_ops(indices.values())
    block.add_op(YieldOp(elementwise.append(block, inputs, {loop: index.result for loop, index in indices.items()})))
    name_arguments(block, operands)
    epilogue = PointwiseOp(operands, Region(block))
    epilogue.function.name_hint, epilogue.location = "epilogue", products[0].location
    operand = products[0].b if b is None else b.operand
    fused = products[0].like(b=operand, d=elementwise.output, through=epilogue.function)
    Rewriter.insert_op([*([] if b is None else [b]), *with_functions(fused)], InsertPoint.before(elementwise.op))
    for op in (elementwise.op, *products):
        Rewriter.erase_op(op)
    drop_forms([product.through for product in products])
    for match in matches:
        drop_unused(match.temporary)


def inlined(epilogue: Region, block: Block, arguments: Sequence[SSAValue]) -> SSAValue:
    """Appends an epilogue to a block. `arguments` are the values of its first arguments. Returns the yielded value."""
    mapped: dict[SSAValue, SSAValue] = dict(zip(epilogue.block.args, arguments, strict=False))
    for op in epilogue.block.ops:
        if not isinstance(op, YieldOp):
            block.add_op(op.clone(mapped))
    return mapped[yielded(epilogue)]


def name_arguments(block: Block, epilogue_operands: Sequence[tuple[SSAValue, AffineMap]]) -> None:
    """Names arguments after the operands that they stand for."""
    products = len(block.args) - len(epilogue_operands)
    for argument in block.args[:products]:
        argument.name_hint = "product"
    for argument, (value, _) in zip(block.args[products:], epilogue_operands, strict=True):
        argument.name_hint = value.name_hint


def producers(elementwise: Elementwise, limit: int = 1) -> list[Match]:
    """Up to `limit` earlier products that can be fused with an operation, the last one first. A remark says why a
    product that it reads cannot be fused."""
    wanted, matches, reason, op = set(elementwise.read), list[Match](), "", elementwise.op.prev_op
    while op is not None and len(matches) < limit:
        if isinstance(op, MatmulOp) and op.d in wanted:
            match = Match(op, elementwise)
            obstacle = match.objection()
            matches += [] if obstacle else [match]
            reason = reason or obstacle
        op = op.prev_op
    if reason and limit == 1 and not matches:
        remark(elementwise.op, FUSE, f"it is not fused with the product whose result it reads: {reason}")
    return matches


@rewrite_pattern
def fuse_epilogue(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Moves an elementwise operation on the result of a product into its epilogue."""
    elementwise = read_elementwise(op)
    for match in [] if elementwise is None else producers(elementwise):
        fuse([match])
        chose(op, FUSE, f"{op.name} is part of the product whose result it reads")
        rewriter.has_done_action = True


@dataclass(frozen=True)
class Replacement:
    """The operations `used` to compute `results`; `last` is the last of them. The replacement takes its place, and
    reads memory whose roots are `read`, some of it as the operations `left` write it."""

    used: frozenset[Operation]
    last: Operation
    results: frozenset[SSAValue]
    read: Set[SSAValue]
    left: Set[Operation]

    @property
    def is_torn(self) -> bool:
        """Whether it computes what an operation writes, and also reads that from memory, at another place."""
        return not self.left.isdisjoint(self.used)

    @cached_property
    def dead(self) -> frozenset[Operation]:
        """The operations that nobody needs any more."""
        dead = self.used
        while kept := {op for op in dead if not self._serves(op, dead)}:
            dead = dead - kept
        return dead

    def _serves(self, op: Operation, others: Set[Operation]) -> bool:
        """Whether the memory that an operation writes is a result, or is read by `others` only."""
        if op is self.last:
            return True
        if not isinstance(op, LinalgStructuredOperation | MatmulOp):
            return False
        written = op.d if isinstance(op, MatmulOp) else op.outputs[0]
        if written in self.results or not isinstance(root(written).owner, memref.AllocOp | memref.AllocaOp):
            return written in self.results
        return users_of(root(written)) <= others

    def objection(self) -> str:
        """The reason why the replacement would change a visible result; "" if it would not."""
        if self.is_torn:
            return "elements of what it computes are also read at other places"
        if any(root(a) is root(b) and may_share(a, b) for a, b in combinations(self.results, 2)):
            return "two of its results share elements, which the later one writes last"
        op: Operation | None = min(self.used, key=place_in_block)
        read = set[SSAValue]()
        while op is not self.last and op is not None:
            if op in self.used:
                read |= self.read & {*map(root, all_operands(op))}
            if op not in self.dead:
                touches = touched(op)
                if touches is None:
                    return f"{name_of(op)} stands between its operations, and may touch any memory"
                if touches[1] & read:
                    return f"{op.name} between its operations writes what it reads"
                used = [value for value in all_operands(op) if root(value) in touches[0] | touches[1]]
                if any(
                    root(value) is root(result) and may_share(value, result)
                    for value in used
                    for result in self.results
                ):
                    return f"{op.name} between its operations uses its result"
            op = op.next_op
        return ""

    def replace(self, make: Callable[[], Operation]) -> None:
        """Inserts the new operation and erases the old ones. Raises NotFusedError if moving the work here would change
        a result, or there is nothing to replace."""
        if objection := self.objection():
            decline(objection)
        op = make()
        try:
            for made in with_functions(op):
                made.verify()
            check_unshared(op, self.last, ask=len(self.used) == 1)  # what several do one after the other is right
        except (DiagnosticException, NotFusedError) as error:
            op.erase()  # it reads views, which nothing else does
            decline(message_of(error) if isinstance(error, DiagnosticException) else str(error))
        LocatedRewriter(self.last).insert(with_functions(op))
        self._erase()

    def _erase(self) -> None:
        """Erases the operations, and views and allocations that nothing uses then."""
        operands = {value for op in self.dead for value in op.operands}
        memories = [value for value in operands if isinstance(value.owner, (*VIEWS, memref.AllocOp))]
        for op in sorted(self.dead, key=place_in_block, reverse=True):
            Rewriter.erase_op(op)
        for memory in memories:
            drop_unused(memory)


def place_in_block(op: Operation) -> int:
    """Where in its block an operation stands."""
    return op.parent.get_operation_index(op) if op.parent is not None else 0
