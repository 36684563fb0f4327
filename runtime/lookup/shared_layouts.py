"""Operands of `wgmma` in shared memory, as pictures: the layouts that a matrix descriptor names. PTX ISA 9.7.15.5.1.2.

One pattern is drawn, of which the matrix is made: eight rows of as many bytes as the swizzle has, of 16 without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ...dialect.isa.descriptor import SWIZZLES, UNIT, MatrixDescriptor
from ...dialect.isa.wgmma import Wgmma, rows
from ...dialect.pictures.cells import Cell, Panel, Picture, span
from ..errors import WarploomError
from .fragments import forms_of, short, shown

LINE = 128
"""Bytes of shared memory in a line of a picture."""

ROWS = 8


@dataclass(frozen=True)
class SharedOperand:
    """Operand "a" or "b" of forms of `wgmma` whose elements have `size` bytes, with a swizzle of so many bytes.

    `along_mn` says that elements which follow each other along M or N lie side by side, not those along K.
    """

    form: Wgmma
    operand: str
    swizzle: int
    along_mn: bool

    def __post_init__(self) -> None:
        if self.operand not in ("a", "b"):
            raise WarploomError(f"operands A and B of wgmma can be in shared memory, {shown(self.operand)} cannot")
        if self.swizzle not in SWIZZLES:
            raise WarploomError(f"expected a swizzle of 0, 32, 64 or 128 bytes, got {self.swizzle}")
        if self.along_mn and self.operand not in self.form.transposable(a_shared=True):
            raise WarploomError(
                f"{shown(self.operand)} of {short(self.form)} lies along K: only those of 16 bits may lie along M or N"
            )

    @property
    def bits(self) -> int:
        """Of an element."""
        return self.form.element(self.operand).bits

    @property
    def pattern(self) -> MatrixDescriptor:
        """The layout of one pattern."""
        span = self.swizzle or UNIT
        return MatrixDescriptor(0, UNIT, ROWS * span, self.swizzle)

    @property
    def name(self) -> str:
        """What it is called, also as a file: "wgmma.shared.k-major.swizzle128.16-bit"."""
        way = "mn-major" if self.along_mn else "k-major"
        return f"wgmma.shared.{way}.swizzle{self.swizzle}.{self.bits}-bit"


def find_shared(instruction: str, operand: str, swizzle: int, along_mn: bool) -> SharedOperand:
    """The operand of an instruction, by what people call it.

    Raises:
        WarploomError: if there is none such, naming what there is.
    """
    found = [form for form in forms_of(instruction) if isinstance(form, Wgmma)]
    if not found:
        raise WarploomError(
            f"only operands of wgmma.mma_async are described by a swizzle, not those of '{instruction}'"
        )
    if len({form.a.bits for form in found}) > 1:
        raise WarploomError(f"'{instruction}' has elements of several sizes; say which, as in {short(found[0])}")
    return SharedOperand(found[0], operand.lower(), swizzle, along_mn)


def shared_operands() -> Iterator[SharedOperand]:
    """B of one form for each size of its elements, in every layout that it can have."""
    sizes = {form.b.bits: form for form in reversed(rows()) if not form.granularity}
    for bits, form in sorted(sizes.items()):
        for along_mn in (False, True) if bits == 16 else (False,):
            yield from (SharedOperand(form, "b", swizzle, along_mn) for swizzle in SWIZZLES)


def shared_picture(what: SharedOperand) -> Picture:
    """One pattern, line by line of shared memory, each 16 bytes a cell."""
    size = ROWS * what.pattern.span
    axis = "n" if what.operand == "b" else "m"
    row, unit = ("k", axis) if what.along_mn else (axis, "k")
    panel = Panel("", -(-size // LINE), LINE, tuple(_cells(what, row, unit)))
    way = f"{axis.upper()}-major" if what.along_mn else "K-major"
    swizzle = f"swizzle of {what.swizzle} bytes" if what.swizzle else "no swizzle"
    return Picture(
        f"wgmma.mma_async, {shown(what.operand)} in shared memory: {way}, {what.bits} bits, {swizzle}",
        (panel,),
        (
            f"Lines are {LINE} bytes of shared memory, cells {UNIT} bytes: {row}0 is a row, "
            f"{unit}{span(0, UNIT * 8 // what.bits)} are its elements there.",
            *_beyond(what, axis),
            "PTX ISA 9.7.15.5.1.2, Shared Memory Matrix Layout.",
        ),
    )


def _cells(what: SharedOperand, axis: str, along: str) -> Iterator[Cell]:
    each = UNIT * 8 // what.bits
    for row, unit in product(range(ROWS), range(what.pattern.span // UNIT)):
        place = what.pattern.swizzled(row * what.pattern.span + unit * UNIT)
        yield Cell(place // LINE, place % LINE, 1, UNIT, 4 * row, f"{axis}{row}:{along}{span(unit * each, each)}")


def _beyond(what: SharedOperand, axis: str) -> Iterator[str]:
    """How the pattern is repeated, by the offsets of the descriptor."""
    along = UNIT * 8 // what.bits if not what.swizzle else what.swizzle * 8 // what.bits
    if not what.along_mn:
        yield f"The next {ROWS} rows along {axis.upper()}: the stride offset further."
        if what.swizzle:
            yield f"Along K the start address moves by 32 bytes an instruction, up to {along} elements of a row."
        else:
            yield f"The next {along} elements along K: the leading offset further."
        return
    mn, k = ("leading", "stride") if what.swizzle else ("stride", "leading")
    yield f"The next {along} elements along {axis.upper()}: the {mn} offset further; {ROWS} along K: the {k} offset."
