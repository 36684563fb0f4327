"""What it takes to turn an operand of one matrix instruction into one of another: `warploom layout ... --to ...`."""

from __future__ import annotations

from collections.abc import Iterator

from ...dialect.isa.form import Form
from ...dialect.isa.moves import LoadMatrix, StoreMatrix
from ...dialect.layouts.algebra import Conversion, LayoutMismatchError, convert, tiled
from ...dialect.layouts.layout import Layout
from ..errors import WarploomError
from .fragments import Fragment

REGISTER_BITS = {"f64": 64}
"""Bits of a register by the type of an operand; others have 32."""


def conversion(source: Fragment, target: Fragment) -> Conversion:
    """The ways from one fragment to the other, of as many tiles of each as make one matrix; elements as the target has.

    Raises:
        WarploomError: if the two are not fragments of a matrix that such tiles make.
    """
    rows, columns = (max(f.extent(axis) for f in (source.layout, target.layout)) for axis in "rc")
    held, wanted = (tiled(f.layout, rows // f.layout.rows, columns // f.layout.columns) for f in (source, target))
    try:
        return convert(held, wanted, element_bits(target))
    except LayoutMismatchError as error:
        raise WarploomError(f"{source.name} to {target.name}: {error}") from error


def element_bits(fragment: Fragment) -> int:
    """Bits that an element of a fragment takes in a register.

    Raises:
        WarploomError: if forms of the same layout differ in it.
    """
    operands = ((form, o) for form in fragment.forms for o in form.operands if o.name == fragment.operand)
    elements = len(fragment.layout.element)
    found = {REGISTER_BITS.get(o.type, 32) * o.count // _matrices(form) >> elements for form, o in operands}
    if len(found) > 1:
        widths = " or ".join(map(str, sorted(found)))
        raise WarploomError(f"elements of {fragment.name} take {widths} bits; name a form with a type")
    return found.pop()


def _matrices(form: Form) -> int:
    """How many matrices a form moves at once, each as its layout says."""
    return form.count if isinstance(form, LoadMatrix | StoreMatrix) else 1


def lines(source: Fragment, target: Fragment) -> Iterator[str]:
    """The ways in words, cheapest first, with an estimate of what each costs in issue slots of a warp."""
    found = conversion(source, target)
    for word, fragment, whole in (("from", source, found.source), ("to", target, found.target)):
        yield f"{word:4} {fragment.name}{_tiles(fragment.layout, whole)}: {whole}"
    size, bits = f"{found.source.rows}x{found.source.columns}", element_bits(source)
    narrowed = "" if bits == found.element_bits else f", which lanes have made of {bits} bits before"
    yield f"a matrix of {size} elements of {found.element_bits} bits{narrowed}"
    for number, way in enumerate(found.ways, 1):
        yield f"{number}. cost {way.cost}: {way}"


def _tiles(one: Layout, whole: Layout) -> str:
    down, across = whole.rows // one.rows, whole.columns // one.columns
    return f", {down}x{across} of them" if down * across > 1 else ""
