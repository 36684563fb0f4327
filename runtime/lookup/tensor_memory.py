"""Tensor memory by what people call it: operands of products, loads, stores and copies, drawn."""

from __future__ import annotations

from collections.abc import Iterator

from ...dialect.isa.tensor_product import TensorProduct, products
from ...dialect.layouts.layout import AXES, Layout
from ...dialect.layouts.pictures import Picture, elements, panels
from ...dialect.layouts.tensor_memory import COPIES, MOVES, multiplicand, scales
from ..base.errors import WarploomError

ROOT = "tcgen05"
"""What the names begin with."""

_LISTED = 6


def _of_product(product: TensorProduct) -> Iterator[tuple[str, Layout]]:
    """The operands in tensor memory, and their layouts."""
    op, bits = product.opcode, product.container_bits("a")
    yield "D", product.result
    yield "A", multiplicand(product.shape.m, op.group, op.stationary, op.sparse, bits)
    if product.metadata is not None:
        yield "E", product.metadata
    if product.scale is not None:
        for operand, rows in (("scale_a", product.rows), ("scale_b", 128)):
            yield operand, scales(rows, op.vector)


def _known() -> Iterator[tuple[str, str, Layout]]:
    """Names, operands and layouts."""
    for shape, layout in MOVES.items():
        yield f"{ROOT}.ld.{shape}", "D", layout
        yield f"{ROOT}.st.{shape}", "B", layout
    for shape, layout in COPIES.items():
        yield f"{ROOT}.cp.{shape}", "D", layout
    for form in products():
        vector = f".{form.opcode.vector}X" if form.scale is not None else ""
        for operand, layout in _of_product(form):
            yield f"{form.opcode}{vector}.m{form.shape.m}.{form.a.name}", operand, layout


def _named(words: set[str], name: set[str]) -> bool:
    """Whether words name something: all are there, and it is of `.ws` or `.sp` if they say so."""
    return words <= name and all((word in words) == (word in name) for word in ("ws", "sp"))


def tensor_picture(instruction: str, operand: str) -> Picture:
    """The picture of an operand of an instruction whose words a name has, such as `tcgen05.mma.kind::f16.m64`, D.

    Raises:
        WarploomError: if there is none, or if there are several that differ; it names some.
    """
    words = set(instruction.split("."))
    fits = [known for known in _known() if _named(words, set(known[0].split(".")))]
    named = [(name, layout) for name, of, layout in fits if of.lower() == operand.lower()]
    if not named:
        have = ", ".join(dict.fromkeys(of for _, of, _ in fits)) or "nothing"
        raise WarploomError(f"'{instruction}' has no operand '{operand}' in tensor memory; it has {have}")
    layouts = dict.fromkeys(layout for _, layout in named)
    if len(layouts) > 1:
        names = list(dict.fromkeys(name for name, _ in named))
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        raise WarploomError(
            f"operand {operand} is not the same in all that '{instruction}' names; say which: "
            f"{', '.join(names[:_LISTED])}{more}"
        )
    (layout,) = layouts
    return _picture(named[0][0], operand, layout)


def _picture(name: str, operand: str, layout: Layout) -> Picture:
    """A picture of the base tile: threads of a warp of loads and stores, lanes of tensor memory of all else."""
    moves = name.split(".")[1] in ("ld", "st")
    others = {axis: text for axis, text in AXES.items() if axis not in "rc"}
    lane, element = ("thread", "register") if moves else ("lane", "element of the lane, from its first column on")
    place = (
        "rows are lanes of tensor memory, columns its columns" if moves else "rows and columns are those of the matrix"
    )
    notes = (f"Lane bits | element bits: {layout}.", f"T is the {lane}, e the {element}; {place}.")
    return Picture(f"{name}, operand {operand}", panels(layout, elements("e"), others), notes)
