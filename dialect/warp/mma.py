"""`warp.mma`: the product of two fragments, dense or sparse, added to a third."""

from __future__ import annotations

from typing import Any, ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, StringAttr, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    ParsingState,
    PrintingState,
    TypeDirective,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..isa import families, mma
from ..isa.form import ProductForm, Shape, having
from ..isa.mma import Mma
from ..layouts.layout import Labels, Layout, disagreement, labels, origins
from ..mlir.words import irdl_op_definition
from .attributes import SCALES, FragmentType, fragment_of, type_of_element
from .op_shapes import BareWord, FieldValue, TypeOfOptional, WarpOp, verify_target

NIBBLE = IntegerType(4)
"""The element type of metadata: one code for each chunk of a row of A."""


def metadata_type(layout: Layout, down: int = 1, deep: int = 1) -> FragmentType:
    """The type of the metadata of `down` by `deep` instructions' A: a nibble for each row and chunk."""
    return FragmentType.of("meta", down * layout.rows, deep * layout.columns, NIBBLE, layout)


def verify_metadata(
    row: ProductForm, metadata: SSAValue | None, selector: IntegerAttr | None, tiles: tuple[int, int] = (1, 1)
) -> None:
    """Checks the metadata of a sparse A of so many instructions' tiles, and the sparsity selector. Raises
    VerifyException if there are none, or others; naming the legal selectors."""
    if metadata is None or row.metadata is None:
        if selector is not None:
            raise VerifyException("a sparsity selector is of the metadata of a sparse A, which is not given")
        return
    expected = metadata_type(row.metadata, *tiles)
    if metadata.type != expected:
        raise VerifyException(f"expected the metadata to be {expected}, got {metadata.type}")
    chosen = None if selector is None else selector.value.data
    if chosen not in row.selectors:
        legal, got = " or ".join(map(str, row.selectors)), "none" if chosen is None else chosen
        raise VerifyException(f"expected a sparsity selector of {legal} for {row.spelling}, got {got}")


@irdl_custom_directive
class TypeOfResult(CustomDirective):
    """The type of D where it is not that of C: ` -> !warp.fragment<acc, ...>`."""

    d: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        if parser.parse_optional_punctuation("->"):
            self.d.parse(parser, state)
        else:
            self.d.set(state, state.operand_types[2] or ())

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if op.results[0].type != op.operands[2].type:
            printer.print_string(" -> ")
            self.d.print(printer, state, op)


@irdl_op_definition
class MmaOp(WarpOp):
    """D = A * B + C, with A m x k, B k x n and C, D m x n fragments of a warp.

    The shape, the element types of the operands, and further words determine the instruction. The sizes of the
    fragments are multiples of its shape. Printed as::

        %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, ...>, !warp.fragment<b, ...>, !warp.fragment<acc, ...>
        %d = warp.mma m16n8k32 %a, %b, %c {satfinite} : ...
        %d = warp.mma m8n8k4 %a, %b, %c {layouts = "col.row"} : !a, !b, !half -> !float
        %d = warp.mma m16n8k64 %a, %b, %c scaled %sa, %sb {kind = "mxf4nvf4", selectors = array<i64: 0, 1, 0, 3>} : ...
        %d = warp.mma m16n8k32 %a, %b, %c sparse %e {ordered, selector = 1 : i64} : !a, !b, !acc sparse !meta

    Attributes say the layouts of m8n8k4 (`row.row`, `col.row`, `col.col`), `satfinite`, the `rounding` of f64 (`rn`,
    `rz`, `rm`, `rp`), the `bit_op` of b1 (`xor`, `and`) and the `.kind`. The selectors of scales are a byte-id and a
    thread-id of A, then those of B. D has the type of C unless another one is given.

    With a sparse A, half of each of its rows is stored, so the fragment of A is m x k/2. The metadata after `sparse`
    gives the positions of the stored elements, and the sparsity selector the lanes that hold the metadata. `ordered` is
    `::ordered_metadata`: the indices of each chunk increase.

    Source: PTX ISA 9.7.14.5.14 and 9.7.14.6.3.
    """

    name = "warp.mma"

    a = operand_def(FragmentType)
    b = operand_def(FragmentType)
    c = operand_def(FragmentType)
    e = opt_operand_def(FragmentType)
    scales = var_operand_def(FragmentType)
    shape = prop_def(StringAttr)
    layouts = opt_prop_def(StringAttr)
    ordered = opt_prop_def(UnitAttr)
    satfinite = opt_prop_def(UnitAttr)
    rounding = opt_prop_def(StringAttr)
    bit_op = opt_prop_def(StringAttr)
    kind = opt_prop_def(StringAttr)
    selector = opt_prop_def(IntegerAttr)
    selectors = opt_prop_def(DenseArrayBase[IntegerType])
    d = result_def(FragmentType)

    traits = traits_def(Pure())
    custom_directives: ClassVar = (BareWord, TypeOfOptional, TypeOfResult)
    assembly_format = (
        "custom<BareWord>($shape) $a `,` $b `,` $c (`sparse` $e^)? (`scaled` $scales^)? attr-dict `:` type($a) `,` "
        "type($b) `,` type($c) custom<TypeOfOptional>(`sparse`, type($e)) (`scaled` type($scales)^)? "
        "custom<TypeOfResult>(type($d))"
    )
    ROLES: ClassVar = (("a", "A", "a"), ("b", "B", "b"), ("c", "C", "acc"))

    def __init__(self, shape: Shape, a: SSAValue, b: SSAValue, c: SSAValue, **fields: FieldValue):
        """D has the type of C unless `fields` has another one."""
        super().__init__(a, b, c, shape=str(shape), **({"d": c.type} | fields))

    @property
    def fragments(self) -> tuple[FragmentType, FragmentType, FragmentType]:
        """The types of A, B and C."""
        a, b, c = map(fragment_of, self.operands[:3])
        return a, b, c

    @property
    def sparsity(self) -> int:
        """Columns of A that a stored element stands for."""
        return 1 if self.e is None else 2

    def _scales(self) -> tuple[int, str]:
        if not self.scales:
            return 0, ""
        first = fragment_of(self.scales[0])
        names = {operand: scale for scale, operand in SCALES.items()}
        return first.layout.data.columns, names.get(first.element.name, first.element.name)

    @property
    def row(self) -> Mma:
        """The ISA's row of the instruction; D's element type is taken from C where they have the same type. If two
        spellings name one instruction, the more explicit one is used. Raises VerifyException if the ISA has no such
        instruction, naming the nearest ones."""
        table = mma.rows if self.e is None else mma.sparse_rows
        texts = (self.layouts, self.rounding, self.bit_op, self.kind)
        layouts, rounding, bit_op, kind = ("" if word is None else word.data for word in texts)
        a_layout, _, b_layout = (layouts or "row.col").partition(".")
        satfinite, ordered = self.satfinite is not None, self.ordered is not None
        a, b, c = (fragment.element for fragment in self.fragments)
        d = c if self.d.type == self.c.type else fragment_of(self.d).element
        scales, scale_type = self._scales()
        fields: dict[str, Any] = {"shape": self._shape(), "a": a, "b": b, "c": c, "a_layout": a_layout}
        fields |= {"b_layout": b_layout, "scale_type": scale_type, "satfinite": satfinite, "ordered": ordered}
        fields |= {"rounding": rounding, "bit_op": bit_op, "kind": kind}
        rows = [row for row in having(table, d=d, **fields) if row.scale is None or row.scale.vector == scales]
        if rows:
            return rows[-1]
        if c != d and having(table, d=c, **fields):
            raise VerifyException(f"expected D of the type of C, {self.fragments[2]}, got {self.d.type}")
        sparse = "" if self.e is None else ".sp::ordered_metadata" if ordered else ".sp"
        kind, scaled = f"kind::{kind}" if kind else "", f"scale_vec::{scales}X" if scales else ""
        words = [f"mma{sparse}.sync.aligned", self.shape.data, a_layout, b_layout, "satfinite" * satfinite, kind]
        words += [scaled, d.name, a.name, b.name, c.name, scale_type, rounding, bit_op]
        asked = ".".join(filter(None, words))
        raise VerifyException(f"the ISA has no {asked}; the nearest are {', '.join(families.nearest(asked))}")

    def _shape(self) -> Shape:
        try:
            return Shape.parse(self.shape.data)
        except ValueError as e:
            raise VerifyException(str(e)) from None

    @property
    def scale_selectors(self) -> tuple[int, ...]:
        """byte-id and thread-id of the scales of A, then those of B."""
        return () if self.selectors is None else tuple(self.selectors.iter_values())

    # Verification

    def verify_(self) -> None:
        row, fragments = self.row, self.fragments
        labels_ = [
            _verify_fragment(row, role, name, expected, fragment)
            for (role, name, expected), fragment in zip(self.ROLES, fragments, strict=True)
        ]
        a, b, c = (fragment.shape for fragment in fragments)
        if a[1] * self.sparsity != b[0] or (a[0], b[1]) != c:
            k = "k" if self.e is None else "k/2"
            raise VerifyException(
                f"expected A m x {k}, B k x n and C m x n, got {a[0]}x{a[1]}, {b[0]}x{b[1]} and {c[0]}x{c[1]}"
            )
        self._verify_labels(row, *labels_)
        self._verify_result(row)
        verify_metadata(row, self.e, self.selector, fragments[0].tiles)
        self._verify_scales(row)
        verify_target(self, row)

    def _verify_labels(self, row: Mma, a: Labels, b: Labels, c: Labels) -> None:
        """A, B and C may number rows and columns otherwise than the instruction, but alike."""
        shared = [("A", "m", a.rows, "C", c.rows), ("B", "n", b.columns, "C", c.columns)]
        if self.sparsity == 1:
            shared.append(("A", "k", a.columns, "B", b.rows))
        own: list[tuple[str, str, tuple[int, ...]]] = []
        if self.sparsity > 1 or row.scale is not None:
            # Metadata and scales name elements by the instruction's own numbers.
            own += [("A", "m", a.rows), ("A", "k", a.columns), ("B", "k", b.rows)]
        if row.scale is not None:
            own.append(("B", "n", b.columns))
        shared += [(name, axis, bits, "the instruction", tuple(range(len(bits)))) for name, axis, bits in own]
        for problem in shared:
            if (message := disagreement(*problem)) is not None:
                raise VerifyException(message)

    def origins(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
        """Of A, B and C: where each of the instruction's tiles begins in the matrix, in the order of registers."""
        row = self.row
        a, b, c = (
            origins(fragment.layout.data, row.layout(role), fragment.tiles)
            for (role, _, _), fragment in zip(self.ROLES, self.fragments, strict=True)
        )
        return a, b, c

    def scale_places(self, role: str) -> list[tuple[int, int, int]]:
        """For each instruction tile of A or B, in the order of registers: the number of the register with its scales,
        and the byte-id and thread-id that select them."""
        row, of_b = self.row, role == "b"
        scale, origins = row.scale, self.origins()[of_b]
        if scale is None:
            return []
        fragment, (byte, thread) = fragment_of(self.scales[of_b]), self.scale_selectors[2 * of_b :][:2]
        layout, (m, n, k) = fragment.layout.data, row.shape
        size, extent = (n, layout.columns) if of_b else (m, layout.rows)
        places: list[tuple[int, int, int]] = []
        for r, c in origins:
            along, step = (c, r // k) if of_b else (r, c * self.sparsity // k)
            number, within = divmod(along, extent)
            register = step * fragment.tiles[1] + number if of_b else number * fragment.tiles[1] + step
            places.append((register, byte, thread + within // size))
        return places

    def _verify_result(self, row: Mma) -> None:
        c, steps = self.fragments[2], self.fragments[1].shape[0] // row.shape.k
        layout = row.layout("d")
        expected = FragmentType.of("acc", *c.shape, type_of_element(row.d), layout)
        if row.c == row.d and self.d.type != c:
            raise VerifyException(f"expected D of the type of C, {c}, got {self.d.type}")
        if self.d.type != c and self.d.type != expected:
            raise VerifyException(f"expected D to be {expected}, got {self.d.type}")
        if row.c != row.d and steps > 1:
            raise VerifyException(f"expected one step along k where C and D have different types, got {steps}")

    def _verify_scales(self, row: Mma) -> None:
        scale = row.scale
        if scale is None:
            if self.selectors is not None:
                raise VerifyException(f"{row.spelling} has no scales to select")
            return
        if len(self.scales) != 2 or len(self.scale_selectors) != 4:
            raise VerifyException(f"{row.spelling} takes scales of A and of B, with a byte-id and a thread-id each")
        (down, deep), (_, across) = self.fragments[0].tiles, self.fragments[1].tiles
        for role, operand, tiles, chosen in (
            ("a", self.scales[0], (down, deep), self.scale_selectors[:2]),
            ("b", self.scales[1], (deep, across), self.scale_selectors[2:]),
        ):
            layout = scale.layout(role)
            size = tiles[0] * layout.rows, tiles[1] * layout.columns
            shared = scale.shared_by(role, fragment_of(operand).layout.data)
            expected = FragmentType.of("scale", *size, type_of_element(scale.type), scale.layout(role, shared))
            if operand.type != expected:
                raise VerifyException(f"expected the scales of {role.upper()} to be {expected}, got {operand.type}")
            legal = (("byte-id", scale.byte_ids), ("thread-id", scale.thread_ids(role)[:: 1 << shared]))
            for (what, values), value in zip(legal, chosen, strict=True):
                if value not in values:
                    listed = ", ".join(map(str, values))
                    raise VerifyException(f"expected {what}-{role} {listed} for {scale.vector} scales, got {value}")


def _verify_fragment(row: Mma, role: str, name: str, expected: str, fragment: FragmentType) -> Labels:
    """How the fragment of an operand calls the instruction's rows and columns."""
    if fragment.role.data != expected:
        raise VerifyException(f"expected {name} to be a fragment of role {expected}, got {fragment.role.data}")
    layout, bits, element = row.layout(role), row.container_bits(role), row.element(role)
    labels_ = labels(fragment.layout.data, layout)
    if labels_ is not None and fragment.bits == bits:
        return labels_
    in_bytes = ["", ", bytes"]
    raise VerifyException(
        f"expected matrix {name} of {row.shape} {element.name} to be {row.registers(role)} x b{max(32, bits)} per lane "
        f"in layout [{layout}]{in_bytes[bits != element.bits]}, got {fragment.tile_registers} in "
        f"[{fragment.layout.data}]{in_bytes[fragment.bits != element.bits]}"
    )
