"""Fragments, and operands of `wgmma` in shared memory, as pictures. PTX ISA 9.7.15."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product

from ...dialect.isa.form import ELEMENT_TYPES, BlockScale, Granularity, ProductForm, register_type
from ...dialect.isa.mma import LoadMatrix, Mma, MoveMatrix, StoreMatrix
from ...dialect.isa.tensor_product import TensorProduct, products
from ...dialect.isa.wgmma import SWIZZLES, UNIT, MatrixDescriptor, Wgmma
from ...dialect.layouts.layout import AXES, Layout
from ...dialect.layouts.pictures import Cell, Panel, Picture, cells, elements, panels, span
from ...dialect.layouts.tensor_memory import COPIES, MOVES, multiplicand, scales
from ..base.errors import WarploomError
from .fragments import Fragment, forms_of, short, shown, some

# What there is to draw of a fragment: its cells, what they are called, and what must be said below.


@dataclass(frozen=True)
class RegisterFormat:
    """How registers hold a fragment: elements of these types, `bits` of a register each, in `count` registers."""

    types: tuple[str, ...]
    bits: int
    register: str
    count: int


def register_formats(fragment: Fragment) -> tuple[RegisterFormat, ...]:
    """How registers hold the fragment, for each width of its elements."""
    groups: dict[tuple[int, str, int], dict[str, None]] = {}
    for form in fragment.forms:
        if isinstance(form, Mma):
            element = form.element(fragment.operand)
            bits = form.container_bits(fragment.operand) if fragment.operand in "ab" else element.bits
            key = bits, register_type(element), form.registers(fragment.operand)
            groups.setdefault(key, {})[element.name] = None
        elif isinstance(form, Wgmma):
            element = form.element(fragment.operand)
            key = element.bits, register_type(element), fragment.layout.elements * element.bits // 32
            groups.setdefault(key, {})[element.name] = None
    return tuple(RegisterFormat(tuple(types), *key) for key, types in groups.items())


def picture(fragment: Fragment) -> Picture:
    """The fragment as a picture."""
    form, operand = fragment.form, fragment.operand
    if isinstance(form, LoadMatrix | StoreMatrix | MoveMatrix):
        return _move(fragment, form)
    if isinstance(form, ProductForm) and form.granularity and operand == "e":
        return _metadata(fragment, form.granularity)
    if isinstance(form, ProductForm) and form.scale and operand.startswith("scale"):
        return _scales(fragment, form.scale)
    notes = [_packing(fragment.operand, how) for how in register_formats(fragment)]
    if isinstance(form, Wgmma) and operand == "d":
        notes.insert(0, "Eight columns of D; the next eight are the next elements of the same threads.")
    if isinstance(form, ProductForm) and form.sparse and operand == "a":
        notes.insert(0, "Columns are the stored elements of A; the metadata, operand E, says where they belong.")
    notes.append(_source(fragment, "element"))
    types = ", ".join(dict.fromkeys(name for how in register_formats(fragment) for name in how.types))
    size = f"{fragment.layout.rows} x {fragment.layout.columns}"
    drawn = panels(fragment.layout, elements(operand), {"q": "product"})
    return Picture(f"{_instruction(fragment)}, {shown(operand)}: {size}, {types}", drawn, tuple(notes))


def _source(fragment: Fragment, what: str) -> str:
    """The last note: the layout as a bit map, and where the text has it."""
    sections = dict.fromkeys(form.section for form in fragment.forms)
    return f"Lane bits | {what} bits: {fragment.layout}. PTX ISA {', '.join(sections)}."


def _instruction(fragment: Fragment) -> str:
    """The words that all forms of the fragment have: "mma.m16n8k16"."""
    form = fragment.form
    if isinstance(form, Wgmma):
        return f"wgmma.mma_async{'.sp' if form.sparse else ''}.m64nNk{form.shape.k}"
    if not isinstance(form, Mma):
        return short(form)
    words = ["mma.sp" if form.sparse else "mma", str(form.shape)]
    if form.products > 1:
        layouts = {(f.a_layout, f.b_layout) for f in fragment.forms if isinstance(f, Mma)}
        if fragment.operand in "ab":
            words.append(form.a_layout if fragment.operand == "a" else f"*.{form.b_layout}")
        elif len(layouts) == 1:
            words += [form.a_layout, form.b_layout]
    return ".".join(words)


def _packing(letter: str, how: RegisterFormat) -> str:
    """How elements lie in registers, in words."""
    types, many = ", ".join(how.types), "s" if how.count > 1 else ""
    start = f"{types}: {how.count} .{how.register} register{many} per lane"
    if how.bits >= 32:
        return f"{start}, one element each."
    if any(ELEMENT_TYPES[name].bits < how.bits for name in how.types):
        start += ", each element in a byte"
    return f"{start}, {32 // how.bits} elements each, {letter}0 in the lowest bits of the first."


def _metadata(fragment: Fragment, chunk: Granularity) -> Picture:
    def label(first: int, count: int) -> str:
        return f"[{4 * (first + count) - 1}:{4 * first}]"

    types = ", ".join(dict.fromkeys(f.a.name for f in fragment.forms if isinstance(f, ProductForm)))
    return Picture(
        f"{_instruction(fragment)}, E: metadata of A, {types}",
        panels(fragment.layout, label, {"f": "sparsity selector"}),
        (
            f"Columns are chunks of {chunk.chunk} elements of a row of A, {chunk} stored; each has 4 bits of metadata.",
            "T0:[15:0] is bits 15 to 0 of the metadata register of lane 0, the first chunk lowest.",
            _source(fragment, "nibble"),
        ),
    )


def _scales(fragment: Fragment, scale: BlockScale) -> Picture:
    role, count = fragment.operand[-1], scale.vector

    def label(first: int, together: int) -> str:
        if len(scale.byte_ids) == 1:
            return f"byte {first}" if together == 1 else f"bytes {span(first, together)}"
        return "b" if together == 1 else "b,b+1"

    types = ", ".join(
        dict.fromkeys(f.scale.type.name for f in fragment.forms if isinstance(f, ProductForm) and f.scale)
    )
    legal = ", ".join(map(str, scale.byte_ids))
    side = "row of A" if role == "a" else "column of B"
    many = "One scale" if count == 1 else f"{count} scales"
    which = f"b is byte-id-{role}, the first byte used of the lane's register: {legal}."
    notes = (
        f"{many} for each {side}, in the lane that thread-id-{role} selects.",
        *((which,) if len(scale.byte_ids) > 1 else ()),
        _source(fragment, "byte"),
    )
    title = f"{_instruction(fragment)}, scale_{role}: scale_vec::{count}X, {types}"
    return Picture(title, panels(fragment.layout, label, {"t": f"thread-id-{role}"}), notes)


def _move(fragment: Fragment, form: LoadMatrix | StoreMatrix | MoveMatrix) -> Picture:
    line = _source(fragment, "element")
    letter = fragment.operand
    if isinstance(form, MoveMatrix):
        words = "by their rows and columns in a, one register each way"
        drawn = panels(fragment.layout, elements(letter), {})
        return Picture(f"{short(form)}, {shown(letter)}: 8 x 8, 16 bits", drawn, (f"Elements {words}.", line))
    seen = fragment.layout
    drawn = tuple(_matrix(seen, letter, number, form.count) for number in range(form.count))
    moved = "stored to" if isinstance(form, StoreMatrix) else "loaded from"
    many = f"{form.registers} .b32 register{'s' if form.registers > 1 else ''} per lane"
    notes = [
        f"Rows are {moved} shared memory; p: the lane that gives the address of the row.",
        f"{many}, {32 // form.element_bits} elements each, {letter}0 in the lowest bits of the first.",
        line,
    ]
    if isinstance(form, LoadMatrix) and form.memory_bits != form.element_bits:
        notes.insert(1, f"Elements of {form.memory_bits} bits in memory, each delivered in a byte.")
    return Picture(
        f"{short(form)}, {shown(letter)}: {form.count} of {seen.rows} x {seen.columns}, {form.element_bits} bits",
        drawn,
        tuple(notes),
    )


def _matrix(layout: Layout, letter: str, number: int, count: int) -> Panel:
    """Matrix `number` of a move; its elements follow those of the matrices before it."""

    def label(first: int, together: int) -> str:
        return elements(letter)(first + number * layout.elements, together)

    cells_ = tuple(cells(layout, label, {}))
    title = f"matrix {number}" if count > 1 else ""
    return Panel(title, layout.rows, layout.columns, cells_, addresses=number * layout.rows)


# Operands of `wgmma` in shared memory, as pictures: the layouts that a matrix descriptor names. PTX ISA 9.7.15.5.1.2.
#
# One pattern is drawn, of which the matrix is made: eight rows of as many bytes as the swizzle has, of 16 without one.

LINE = 128
"""Bytes of shared memory in a line of a picture."""

ROWS = 8


@dataclass(frozen=True)
class SharedOperand:
    """Operand "a" or "b" of forms of `wgmma` in shared memory, with a swizzle of so many bytes. `along_mn` says that
    elements are contiguous along M or N, not along K."""

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
        return MatrixDescriptor(0, UNIT, ROWS * (self.swizzle or UNIT), self.swizzle)

    @property
    def name(self) -> str:
        """What it is called, also as a file: "wgmma.shared.k-major.swizzle128.16-bit"."""
        major = "mn-major" if self.along_mn else "k-major"
        return f"wgmma.shared.{major}.swizzle{self.swizzle}.{self.bits}-bit"


def find_shared(instruction: str, operand: str, swizzle: int, along_mn: bool) -> SharedOperand:
    """The operand of an instruction, by a usual name. Raises WarploomError if there is no such operand, with the names
    that exist."""
    forms = [form for form in forms_of(instruction) if isinstance(form, Wgmma)]
    if not forms:
        raise WarploomError(
            f"only operands of wgmma.mma_async are described by a swizzle, not those of '{instruction}'"
        )
    if len({form.a.bits for form in forms}) > 1:
        raise WarploomError(f"'{instruction}' has elements of several sizes; say which, as in {short(forms[0])}")
    return SharedOperand(forms[0], operand.lower(), swizzle, along_mn)


def shared_picture(what: SharedOperand) -> Picture:
    """One pattern, line by line of shared memory, each 16 bytes a cell."""
    size = ROWS * what.pattern.span
    axis = "n" if what.operand == "b" else "m"
    row, unit = ("k", axis) if what.along_mn else (axis, "k")
    panel = Panel("", -(-size // LINE), LINE, tuple(_cells(what, row, unit)))
    major = f"{axis.upper()}-major" if what.along_mn else "K-major"
    swizzle = f"swizzle of {what.swizzle} bytes" if what.swizzle else "no swizzle"
    return Picture(
        f"wgmma.mma_async, {shown(what.operand)} in shared memory: {major}, {what.bits} bits, {swizzle}",
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


# Tensor memory by what people call it: operands of products, loads, stores and copies, drawn.


ROOT = "tcgen05"
"""What the names begin with."""


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


def tensor_memory_forms() -> Iterator[tuple[str, str, Layout]]:
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
    Raises WarploomError if there is none, or if there are several that differ; it names some."""
    words = set(instruction.split("."))
    fits = [entry for entry in tensor_memory_forms() if _named(words, set(entry[0].split(".")))]
    named = [(name, layout) for name, of, layout in fits if of.lower() == operand.lower()]
    if not named:
        if not fits:
            near = get_close_matches(instruction, {name: None for name, *_ in tensor_memory_forms()}, 3, 0.0)
            raise WarploomError(f"there is no '{instruction}' in tensor memory; nearest: {', '.join(near)}")
        have = ", ".join(dict.fromkeys(of for _, of, _ in fits))
        raise WarploomError(f"'{instruction}' has no operand '{operand}' in tensor memory; it has {have}")
    layouts = dict.fromkeys(layout for _, layout in named)
    if len(layouts) > 1:
        names = some(dict.fromkeys(name for name, _ in named))
        raise WarploomError(f"operand {operand} is not the same in all that '{instruction}' names; say which: {names}")
    (layout,) = layouts
    return tensor_memory_picture(named[0][0], operand, layout)


def tensor_memory_picture(name: str, operand: str, layout: Layout) -> Picture:
    """A picture of the base tile: threads of a warp of loads and stores, lanes of tensor memory of all else."""
    moves = name.split(".")[1] in ("ld", "st")
    others = {axis: text for axis, text in AXES.items() if axis not in "rc"}
    lane, element = ("thread", "register") if moves else ("lane", "element of the lane, from its first column on")
    place = (
        "rows are lanes of tensor memory, columns its columns" if moves else "rows and columns are those of the matrix"
    )
    notes = (f"Lane bits | element bits: {layout}.", f"T is the {lane}, e the {element}; {place}.")
    return Picture(f"{name}, operand {operand}", panels(layout, elements("e"), others), notes)
