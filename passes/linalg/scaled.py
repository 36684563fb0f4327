"""What a product reads beside an A and a B whose blocks are scaled: scales."""

from __future__ import annotations

from xdsl.dialects.builtin import DYNAMIC_INDEX

from ...dialect.warp.loops import K, M, N, loops_beside, map_along
from ...dialect.warp.matmul import MatmulOp
from ..diagnostics import fail
from .matrices import read_matrix
from .operand import MatrixOperand


def read_scales(op: MatmulOp, a: MatrixOperand, b: MatrixOperand, *, dynamic: bool) -> tuple[MatrixOperand, ...]:
    """The scales of A and B, or none. `dynamic` says that sizes of the product are not known.

    Raises a located diagnostic for scaled products that are not lowered, of which operands do not lie as the
    instruction names the elements of a block.
    """
    if not op.scales:
        return ()
    if op.outer > op.batch:
        fail(op, "a scaled product that is summed over several loops is not lowered; write a product for each")
    given = zip("AB", op.scales, (M, N), op.maps, strict=False)
    along = [(name, value, own, loops_beside(map_, own, op.outer)) for name, value, own, map_ in given]
    loops = op.outer + 3
    scales = tuple(read_matrix(op, f"S{name}", s, (own, K), {}, map_along(loops, at)) for name, s, own, at in along)
    for name, operand, along_k in (("A", a, not a.transposed), ("B", b, b.transposed)):
        if not along_k:
            where = "by rows" if name == "A" else "by columns"
            fail(op, f"expected {name} of a scaled product {where}, along which it is scaled, got {operand.type}")
    for operand in scales:
        if operand.transposed:
            fail(op, f"expected the scales of a row or a column side by side in memory, got {operand.type}")
    if dynamic or any(DYNAMIC_INDEX in operand.type.get_shape() for operand in scales):
        fail(op, f"a scaled product needs static sizes, got {a.type} and {b.type}")
    return scales
