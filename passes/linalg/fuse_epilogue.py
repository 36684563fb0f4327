"""`warp-fuse-epilogue`: elementwise operations on a product's result move into the product.

`D = f(A B, X, ...)` written as a product into a temporary memref (or into D itself) and a `linalg.generic` that reads
it becomes one `warp.matmul` with an epilogue. Nothing about the values changes: an element of the product is still
rounded to the temporary's element type before f sees it.

Fusing is legal when nobody can tell that the temporary is never written, and that the product is computed later, where
the elementwise operation stands:

- the temporary is the operation's own output, or a `memref.alloc` that nothing else uses;
- the operations in between neither write what the product reads, nor touch the temporary;
- the output shares no memory with A or B, and only element by element with C and the other inputs.

What is not fused stays as it is; `warploom-opt --remarks` says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.context import Context
from xdsl.dialects import memref
from xdsl.dialects.arith import DivfOp, FastMathFlagsAttr
from xdsl.dialects.builtin import MemRefType, ModuleOp, f64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.effects import is_pure
from ...dialect.warp.attributes import element_row, in_place_of
from ...dialect.warp.disjoint import DisjointOp
from ...dialect.warp.elements import YieldOp, yielded
from ...dialect.warp.indices import IndexOp
from ...dialect.warp.loops import element_type, loops_of
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operand_forms import drop_forms
from ...dialect.warp.pointwise import PointwiseOp, with_functions
from ..diagnostics import remark
from .elementwise import FIXED, Elementwise, read_elementwise
from .raise_matmul import raise_products
from .views import root

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
        """The other inputs that it uses."""
        inputs = range(len(self.elementwise.inputs))
        return tuple(i for i in inputs if i not in self.of_product and self.elementwise.reads(i))

    def map_of(self, number: int) -> AffineMap:
        """How an input is indexed by the loops of the product."""
        loops = self.product.maps[2]
        found = (loops.results[loop] for loop in loops_of(self.elementwise.maps[number]))
        return AffineMap(loops.num_dims, 0, tuple(found))

    def _index(self, block: Block, loop: int) -> SSAValue:
        """Appends the index along a loop of the elementwise operation, as one of the product's, to an epilogue."""
        index = IndexOp(loops_of(self.product.maps[2])[loop])
        block.add_op(index)
        return index.result

    def objection(self) -> str:
        """Why fusing would change what somebody can see: see the module. "" if it would not."""
        product = self.product
        if self.elementwise.loops != len(product.maps[2].results):
            return "it has other loops than the product's result has dimensions"
        if any(FIXED in loops_of(map_) for map_ in self.elementwise.maps):
            return "it reads one place along a dimension"
        if any(self.map_of(i) != product.maps[2] for i in self.of_product):
            return "it reads the product's result in another order than it is written"
        if self.temporary != self.elementwise.output and not self._is_private():
            return "others use the product's result too"
        if product.product_type == f64 and (narrow := self._fill_no_register()):
            return f"a lane holds 2 neighbouring sums of f64, and 2 elements of {narrow} fill no register"
        return "" if self._is_unshared() else "its output shares memory with what the product or it reads"

    def _fill_no_register(self) -> str:
        """The type of the elements beside the product of which a lane's fill no register; "" if there are none."""
        values = [self.elementwise.output, *(self.elementwise.inputs[i] for i in self.others)]
        rows = [element_row(element_type(v)) for v in values if isinstance(v.type, MemRefType)]
        return next((row.mlir for row in rows if row is not None and row.bits <= BYTE), "")

    def _is_private(self) -> bool:
        """Whether the temporary is an allocation of which nothing is read but this."""
        product, temporary = self.product, self.temporary
        if temporary in (*product.factors, product.c, *product.epilogue_operands):
            return False
        users = {use.operation for use in temporary.uses} - {product, self.elementwise.op}
        is_local = isinstance(temporary.owner, memref.AllocOp | memref.AllocaOp)
        return is_local and all(isinstance(user, memref.DeallocOp) for user in users)

    def _is_unshared(self) -> bool:
        """Whether no element that others read is overwritten before they have read it."""
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

    def fuse(self) -> MatmulOp:
        """Replaces both operations by a product where the elementwise one stands."""
        product, op, block = self.product, self.elementwise.op, Block(arg_types=[self.product.product_type])
        others = [(self.elementwise.inputs[i], self.map_of(i)) for i in self.others]
        epilogue_operands = list(dict.fromkeys([*product.placed_operands, *others]))
        for value, _ in epilogue_operands:
            block.insert_arg(element_type(value), len(block.args))
        element: SSAValue = block.args[0]
        if product.epilogue is not None:
            element = _inlined(product.epilogue.body, block)
        elements = {
            i: block.args[1 + epilogue_operands.index((self.elementwise.inputs[i], self.map_of(i)))]
            for i in self.others
        }
        indices = {loop: self._index(block, loop) for loop in self.elementwise.indexed}
        result = self.elementwise.append(block, elements | dict.fromkeys(self.of_product, element), indices)
        block.add_op(YieldOp(result))
        _name(block, epilogue_operands)
        epilogue = PointwiseOp(epilogue_operands, Region(block))
        epilogue.function.name_hint, epilogue.location = "epilogue", product.location
        fused = MatmulOp(
            product.a,
            product.b,
            self.elementwise.output,
            product.multiplied,
            c=product.c,
            init=product.init,
            maps=product.maps,
            through=epilogue.function,
            words=product.words,
        )
        Rewriter.insert_op(with_functions(in_place_of(product, fused)), InsertPoint.before(op))
        Rewriter.erase_op(op)
        before = product.through
        Rewriter.erase_op(product)
        drop_forms([before])
        return fused


def _inlined(epilogue: Region, block: Block) -> SSAValue:
    """Appends an epilogue to a block whose first arguments are its own; returns what it yields."""
    known: dict[SSAValue, SSAValue] = dict(zip(epilogue.block.args, block.args, strict=False))
    for op in epilogue.block.ops:
        if not isinstance(op, YieldOp):
            block.add_op(op.clone(known))
    return known[yielded(epilogue)]


def _name(block: Block, epilogue_operands: Sequence[tuple[SSAValue, AffineMap]]) -> None:
    """Gives arguments the names of what they stand for."""
    block.args[0].name_hint = "product"
    for argument, (value, _) in zip(block.args[1:], epilogue_operands, strict=True):
        argument.name_hint = value.name_hint


def touched(op: Operation) -> tuple[set[SSAValue], set[SSAValue]] | None:
    """The memory that an operation (reads, writes); None if that is not known."""
    if is_pure(op) or isinstance(op, memref.AllocOp | memref.AllocaOp | DisjointOp):
        return set(), set()
    if isinstance(op, LinalgStructuredOperation):
        return _roots(op.operands), _roots(op.outputs)
    if isinstance(op, MatmulOp):
        return _roots(op.memories), _roots([op.d])
    return None


def _roots(values: Sequence[SSAValue]) -> set[SSAValue]:
    return {root(value) for value in values if isinstance(value.type, MemRefType)}


def _producer(elementwise: Elementwise) -> Match | None:
    """The product before an operation that it can be fused with; a remark where it cannot be with one that it reads."""
    wanted = {value for i, value in enumerate(elementwise.inputs) if elementwise.reads(i)}
    read: set[SSAValue] = set()
    written: set[SSAValue] = set()
    reason, opaque, op = "", "", elementwise.op.prev_op
    while op is not None:
        if isinstance(op, MatmulOp) and op.d in wanted:
            inputs = _roots([value for value in (*op.factors, op.c, *op.epilogue_operands) if value is not None])
            match = Match(op, elementwise)
            found = opaque and f"{opaque} between them may touch any memory"
            found = found or (written & inputs and "an operation between them writes what the product reads")
            found = found or (root(op.d) in read | written and "an operation between them uses the product's result")
            found = found or match.objection()
            if not found:
                return match
            reason = reason or found
        memory = touched(op)
        if memory is None:
            opaque = opaque or op.name
        else:
            read |= memory[0]
            written |= memory[1]
        op = op.prev_op
    if reason:
        remark(
            elementwise.op, FuseEpiloguePass.name, f"it is not fused with the product whose result it reads: {reason}"
        )
    return None


def _drop_temporary(temporary: SSAValue) -> None:
    """Erases an allocation that nothing uses any more but `memref.dealloc`."""
    users = {use.operation for use in temporary.uses}
    if isinstance(temporary.owner, Operation) and all(isinstance(user, memref.DeallocOp) for user in users):
        for user in users:
            Rewriter.erase_op(user)
        Rewriter.erase_op(temporary.owner)


def _approximate(fused: MatmulOp) -> None:
    """Allows approximations of the functions and quotients of an epilogue, beside what they allow already."""
    if fused.epilogue is None:
        return
    for op in fused.epilogue.body.block.ops:
        flags = op.properties.get("fastmath")
        if isinstance(flags, FastMathFlagsAttr) and (op.name.startswith("math.") or isinstance(op, DivfOp)):
            op.properties["fastmath"] = FastMathFlagsAttr([*flags.data, FastMathFlag.APPROX_FUNC])


@dataclass(frozen=True)
class FuseEpiloguePass(ModulePass):
    """Moves elementwise operations of `linalg` on the result of a product into its epilogue.

    With `approximate`, epilogues use the GPU's approximate instructions, as if each operation had `fastmath<afn>`.
    Products still in `linalg` are raised first.
    """

    name = "warp-fuse-epilogue"

    approximate: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        for candidate in list(op.walk()):
            elementwise = read_elementwise(candidate)
            match = None if elementwise is None else _producer(elementwise)
            if match is not None:
                temporary = match.temporary
                match.fuse()
                if temporary != match.elementwise.output:
                    _drop_temporary(temporary)
        if self.approximate:
            for matmul in [o for o in op.walk() if isinstance(o, MatmulOp)]:
                _approximate(matmul)
