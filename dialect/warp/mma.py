"""Products that warps add to fragments: of two fragments, dense or sparse (`warp.mma`), and of tiles in shared memory
(`warp.tile_mma`)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    VarConstraint,
    base,
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
from xdsl.traits import MemoryReadEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..isa import mma, sparse_mma
from ..isa.form import ELEMENT_TYPES, ProductForm, Shape, having
from ..isa.mma import Mma
from ..layouts.layout import Labels, Layout, disagreement, labels, origins
from ..mlir.words import irdl_op_definition
from .attributes import BYTE, SCALES, FragmentType, fragment_of, is_shared, memory_of, type_of_element
from .matmul import FACTOR, FactorsOp
from .op_shapes import BareWord, FieldValue, TypeOfOptional, WarpOp, element_of, verify_target

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
        table = mma.rows if self.e is None else sparse_mma.rows
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
        from ..ptx.instructions import nearest  # for this message alone

        raise VerifyException(f"the ISA has no {asked}; the nearest are {', '.join(nearest(asked))}")

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
        expected = FragmentType.of("acc", *c.shape, type_of_element(row.d), row.layout("d"))
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


# Products of tiles in shared memory, which the passes expand to `warp.mma` or `warp.wgmma`.

SUMS = VarConstraint("Sums", base(FragmentType))
"""The type of C and D."""


class GroupScales(NamedTuple):
    """Scales in memory, groups x columns, of groups of `size` neighbours along k; what they are for begins at k, n.
    Those of A, if it has some, are `of_rows`, groups x rows; A begins at row m. One scale may be for several rows, or
    columns: as many as `blocks` says."""

    scales: SSAValue
    size: int
    k: SSAValue
    n: SSAValue
    m: SSAValue | None = None
    of_rows: SSAValue | None = None
    blocks: tuple[int, int] = (1, 1)

    def fields(self) -> dict[str, FieldValue]:
        """What an operation with these scales has."""
        at = [at for at in (self.k, self.n, self.m) if at is not None]
        own: dict[str, FieldValue] = {"group_scales": self.scales, "group": self.size, "group_at": at}
        return own if self.of_rows is None else {**own, "row_scales": self.of_rows, "blocks": self.blocks}


@irdl_op_definition
class TileMmaOp(FactorsOp):
    """D = C + A * B of a warp's part, or that of a warpgroup, of A and B that are tiles in shared memory::

        %d = warp.tile_mma %As, %Bs, %c part [%m, %n, %k] {types = ["f16", "f16"], warp.schedule = #warp.schedule<...>}
          : memref<64x32xf16, #warp.swizzle<64>, 3>, memref<32x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, ...>

    A is m x k, B is k x n, and C and D are fragments. `part` has the first row, column and k of the part of the tiles.
    `types` are the ISA types in which A and B are multiplied. `bit_op` and `kind` are the words of `warp.matmul`. A and
    B may be results of `warp.sparse` and `warp.scaled`, as in `warp.matmul`. Those operations then take the tiles of
    metadata and of scales. With `transposed_a`, memory holds the tile of A as k x m. With `transposed_b`, it holds the
    tile of B as n x k. `warp.schedule` names the instruction.

    A may also be a fragment in the registers of the warp, with the rows of C and the warp's part of k. If B has
    integers (`warp.stored`), groups of `group` neighbours along k may have scales in global memory, groups x
    columns. They are printed after the types as `times %S[%k, %n] : memref<...>`, where k and n are the indices at
    which the tiles of A and B begin. Of 8-bit floats, A has scales too, groups x rows, and one scale may be for several
    rows or columns, a block: `times %SB[%k, %n, %m] : memref<...> and %SA : memref<...>`. Scales that are copied to
    shared memory with A and B are `lines %sa, %sb : memref<1x128xf32, ..., 3>, ...`, a line for each group of the tiles
    along k: those of A, those of B, or those of packed weights and their zero points.
    """

    name = "warp.tile_mma"

    a = operand_def(FACTOR | base(FragmentType))
    b = operand_def(FACTOR)
    c = operand_def(SUMS)
    part = var_operand_def(IndexType())
    group_scales = opt_operand_def(MemRefType)
    group_at = var_operand_def(IndexType())
    row_scales = opt_operand_def(MemRefType)
    lines = var_operand_def(MemRefType)
    group = opt_prop_def(IntegerAttr)
    blocks = opt_prop_def(DenseArrayBase.constr(i64))
    transposed_a = opt_prop_def(UnitAttr)
    transposed_b = opt_prop_def(UnitAttr)
    d = result_def(SUMS)

    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$a `,` $b `,` $c `part` `[` $part `]` attr-dict `:` type($a) `,` type($b) `,` type($c) "
        "(`times` $group_scales^ `[` $group_at `]` `:` type($group_scales))? "
        "(`and` $row_scales^ `:` type($row_scales))? (`lines` $lines^ `:` type($lines))?"
    )

    @property
    def groups(self) -> GroupScales | None:
        """The scales of groups along k, if there are any."""
        if self.group_scales is None or self.group is None:
            return None
        k, n, *m = self.group_at
        scales = GroupScales(self.group_scales, self.group.value.data, k, n)
        if self.blocks is None:
            return scales
        rows, columns = self.blocks.get_values()
        return scales._replace(m=m[0], of_rows=self.row_scales, blocks=(rows, columns))

    def _lying(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(m, stored k) of A and (k, n) of B."""
        a, b = map(_shape, self.matrices)
        a = a[::-1] if self.transposed_a else a
        if self.is_packed:
            return a, (a[1], b[0] * b[1] // a[1])
        return a, b[::-1] if self.transposed_b else b

    def verify_(self) -> None:
        self.verify_names()
        self.verify_forms()
        self.verify_words()
        for number, tile in enumerate(self.factors):
            if isinstance(tile.type, FragmentType):
                self._verify_register_operand(tile.type)
            elif not is_shared(memory_of(tile)) or len(_shape(tile)) != 2:
                name = ("A", "B", "what is read beside A and B")[min(number, 2)]
                raise VerifyException(f"expected {name} to be a tile in shared memory, got {tile.type}")
        for name, multiplied, tile in zip("AB", self.multiplied, self.matrices, strict=True):
            stored, wanted = element_of(tile), ELEMENT_TYPES[multiplied]
            if name == "B" and self.b_stored is not None:
                self.b_stored.verify(multiplied, stored)
            elif stored.memory_bits not in (wanted.memory_bits, BYTE):
                raise VerifyException(f"{name} cannot be multiplied as {multiplied}, got {tile.type}")
        self._verify_shape()
        self._verify_groups()

    def _verify_groups(self) -> None:
        parts = [self.group_scales is not None, self.group is not None]
        if self.row_scales is None:
            parts += [len(self.group_at) == 2, bool(self.b_stored), self.blocks is None]
        else:
            parts += [len(self.group_at) == 3, self.blocks is not None and len(self.blocks) == 2]
        if self.group_scales is None and self.group is None and not self.group_at and self.row_scales is None:
            return
        if not all(parts) or (self.group is not None and self.group.value.data < 1):
            of_groups = "groups of integers", "size, and [k, n]"
            what = of_groups if self.row_scales is None else ("blocks", "sizes, and [k, n, m]")
            raise VerifyException(f"expected scales of {what[0]} with their {what[1]} of the tiles")

    def _verify_register_operand(self, a: FragmentType) -> None:
        """Checks an A in registers."""
        c = fragment_of(self.c)
        if a.shape[0] != c.shape[0] or a.role.data != "a" or self.transposed_a is not None:
            raise VerifyException(f"expected a dense A in registers to be a fragment a of C's rows, got {a} and {c}")

    def _verify_shape(self) -> None:
        (rows, stored), (k, columns) = self._lying()
        slices = k // stored if isinstance(self.matrices[0].type, FragmentType) else 1
        if stored * self.sparsity * slices != k:
            a, b = self.matrices
            raise VerifyException(f"expected A and B to agree on k, got {a.type} and {b.type}")
        if len(self.part) != len("mnk"):
            raise VerifyException(f"expected a warp's `part` [m, n, k] of the tiles, got {len(self.part)} indices")
        down, across = fragment_of(self.c).shape
        if rows % down or across > columns or fragment_of(self.c).role.data != "acc":
            what = f"a fragment of accumulators in parts of {rows}x{columns} that fill it"
            raise VerifyException(f"expected {what}, got {self.c.type}")


def _shape(tile: SSAValue) -> tuple[int, ...]:
    return tile.type.shape if isinstance(tile.type, FragmentType) else memory_of(tile).get_shape()


def part_of(fragment: FragmentType, slices: int, *, all_get: bool = False) -> FragmentType:
    """The part of a fragment that one slice gets: some rows of base tiles, or some columns if there is one row of them.
    Some slices get none where fewer divide base tiles, unless `all_get` one, as those of a K that is split do. Raises
    VerifyException if the number of slices is no power of two, or divides nothing so."""
    if slices.bit_count() != 1:
        raise VerifyException(f"expected a power of two of slices, got {slices}")
    (down, across), (rows, columns) = fragment.tiles, fragment.shape
    if down % slices == 0:
        rows //= slices
    elif down == 1 and across % slices == 0:
        columns //= slices
    elif min(down, across) == 1 and not all_get:
        parts = next(n for n in range(slices, 0, -1) if max(down, across) % n == 0)
        rows, columns = (rows, columns // parts) if down == 1 else (rows // parts, columns)
    else:
        raise VerifyException(f"the {down} x {across} base tiles of {fragment} cannot be divided among {slices} slices")
    return fragment.with_shape(rows, columns)
