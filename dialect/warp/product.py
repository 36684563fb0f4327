"""What `warp.mma` and `warp.mma_sp` share: naming a row of the ISA, fragments, scales, text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, StringAttr, UnitAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    opt_prop_def,
    prop_def,
    result_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ..isa.form import KIND_F8F6F4, KIND_MXF4, KIND_MXF4NVF4, KIND_MXF8F6F4, Form, ProductForm, Shape
from ..layouts.layout import Labels, disagreement, labels, origins
from .attributes import SCALES, FragmentType, fragment_of, target_of, type_of_element

WORDS: Mapping[str, tuple[str, ...]] = {
    "layouts": ("row.row", "col.row", "col.col"),
    "ordered": ("ordered",),
    "satfinite": ("satfinite",),
    "rounding": ("rn", "rz", "rm", "rp"),
    "bit_op": ("xor", "and"),
    "kind": (KIND_F8F6F4, KIND_MXF8F6F4, KIND_MXF4, KIND_MXF4NVF4),
}
"""The properties that are words after the shape, in the order they are printed, and what each may say."""

FLAGS = ("ordered", "satfinite")
"""Those that say something by being there."""

_PROPERTY = {word: name for name, words in WORDS.items() for word in words}


class Key(NamedTuple):
    """What tells the rows of one instruction apart. Element types are PTX's names; `scales` is those a row, or 0."""

    shape: Shape
    a: str
    b: str
    c: str
    d: str
    layouts: str = ""
    ordered: bool = False
    satfinite: bool = False
    rounding: str = ""
    bit_op: str = ""
    kind: str = ""
    scales: int = 0
    scale_type: str = ""

    def __str__(self) -> str:
        words = [str(self.shape), self.layouts, "ordered" * self.ordered, "satfinite" * self.satfinite]
        words += [self.rounding, self.bit_op, self.kind, self.a, "x", self.b, "->", self.d]
        words += [f"from {self.c}"] * (self.c != self.d)
        words += [f"scaled by {self.scales} x {self.scale_type}"] * bool(self.scales)
        return " ".join(filter(None, words))

    def distance(self, other: Key) -> tuple[int, int]:
        """How unlike two keys are: the properties that differ, then how far the shapes are."""
        differing = sum(x != y for x, y in zip(self, other, strict=True))
        return differing, sum(abs(x - y) for x, y in zip(self.shape, other.shape, strict=True))


def nearest(wanted: Key, known: Mapping[Key, Form], count: int = 3) -> str:
    """The keys most like one that has no row, in words: best first."""
    return ", ".join(map(str, sorted(known, key=wanted.distance)[:count]))


def verify_target(op: IRDLOperation, row: Form) -> None:
    """Checks that the target of the module has the instruction.

    Raises:
        VerifyException: saying where it runs.
    """
    target = target_of(op)
    if target is not None and not row.runs_on(target):
        raise VerifyException(f"{row.spelling} needs {row.requirement()}, the module's target is {target}")


class ProductOp(IRDLOperation):
    """D = A * B + C by the warp: one row of the ISA, on fragments that are whole multiples of its matrices.

    The operands are A, B, C, what is the operation's own, and the scales.
    """

    shape = prop_def(StringAttr)
    satfinite = opt_prop_def(UnitAttr)
    kind = opt_prop_def(StringAttr)
    selectors = opt_prop_def(DenseArrayBase[IntegerType])
    d = result_def(FragmentType)

    ROLES: ClassVar = (("a", "A", "a"), ("b", "B", "b"), ("c", "C", "acc"))
    SPARSITY: ClassVar = 1
    """Columns of A that a stored element stands for."""
    UNSCALED: ClassVar = 3
    """How many operands come before the scales."""

    @classmethod
    def find(cls, key: Key) -> ProductForm | None:
        """The row of a key."""
        return cls.rows().get(key)

    @classmethod
    def rows(cls) -> Mapping[Key, ProductForm]:
        """Every row of the instruction."""
        raise TypeError(f"{cls.__name__} has no rows")

    @property
    def fragments(self) -> tuple[FragmentType, FragmentType, FragmentType]:
        """The types of A, B and C."""
        a, b, c = map(fragment_of, self.operands[:3])
        return a, b, c

    @property
    def key(self) -> Key:
        """What names the row; D's element type is taken from C where they have the same type."""
        a, b, c = (t.element.name for t in self.fragments)
        scales, scale_type = self._scales()
        return Key(
            self._shape(),
            a,
            b,
            c,
            c if self.d.type == self.operands[2].type else fragment_of(self.d).element.name,
            layouts=self._word("layouts"),
            ordered=bool(self._word("ordered")),
            satfinite=bool(self._word("satfinite")),
            rounding=self._word("rounding"),
            bit_op=self._word("bit_op"),
            kind=self._word("kind"),
            scales=scales,
            scale_type=scale_type,
        )

    @property
    def scaling(self) -> Sequence[SSAValue]:
        """The scales of A and those of B; nothing where there are none."""
        return self.operands[self.UNSCALED :]

    def _word(self, name: str) -> str:
        held = self.properties.get(name)
        return held.data if isinstance(held, StringAttr) else name if isinstance(held, UnitAttr) else ""

    def _scales(self) -> tuple[int, str]:
        if not self.scaling:
            return 0, ""
        first = fragment_of(self.scaling[0])
        names = {held: scale for scale, held in SCALES.items()}
        return first.layout.data.columns, names.get(first.element.name, first.element.name)

    @property
    def row(self) -> ProductForm:
        """The ISA's row of the instruction.

        Raises:
            VerifyException: if the ISA has no such instruction, naming the nearest that it has.
        """
        key = self.key
        row = self.find(key)
        if row is not None:
            return row
        if key.c != key.d and self.find(key._replace(d=key.c)) is not None:
            raise VerifyException(f"expected D of the type of C, {self.fragments[2]}, got {self.d.type}")
        raise VerifyException(
            f"the ISA has no {self.name.removeprefix('warp.')} {key}; the nearest are {nearest(key, self.rows())}"
        )

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
        found = [
            _verify_fragment(row, role, name, expected, fragment)
            for (role, name, expected), fragment in zip(self.ROLES, fragments, strict=True)
        ]
        a, b, c = (fragment.shape for fragment in fragments)
        if a[1] * self.SPARSITY != b[0] or (a[0], b[1]) != c:
            k = "k" if self.SPARSITY == 1 else f"k/{self.SPARSITY}"
            raise VerifyException(
                f"expected A m x {k}, B k x n and C m x n, got {a[0]}x{a[1]}, {b[0]}x{b[1]} and {c[0]}x{c[1]}"
            )
        self._verify_labels(row, *found)
        self._verify_result(row)
        self._verify_scales(row)
        verify_target(self, row)

    def _verify_labels(self, row: ProductForm, a: Labels, b: Labels, c: Labels) -> None:
        """A, B and C may number rows and columns otherwise than the instruction, but alike."""
        shared = [("A", "m", a.rows, "C", c.rows), ("B", "n", b.columns, "C", c.columns)]
        if self.SPARSITY == 1:
            shared.append(("A", "k", a.columns, "B", b.rows))
        own: list[tuple[str, str, tuple[int, ...]]] = []
        if self.SPARSITY > 1 or row.scale is not None:
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
        """For each of the instruction's tiles of A or of B, in the order of registers: the number of the register that
        holds its scales, and the byte-id and the thread-id that pick them."""
        row, of_b = self.row, role == "b"
        scale, origins = row.scale, self.origins()[of_b]
        if scale is None:
            return []
        fragment, (byte, thread) = fragment_of(self.scaling[of_b]), self.scale_selectors[2 * of_b :][:2]
        layout, (m, n, k) = fragment.layout.data, row.shape
        size, extent = (n, layout.columns) if of_b else (m, layout.rows)
        found: list[tuple[int, int, int]] = []
        for r, c in origins:
            along, step = (c, r // k) if of_b else (r, c * self.SPARSITY // k)
            number, within = divmod(along, extent)
            register = step * fragment.tiles[1] + number if of_b else number * fragment.tiles[1] + step
            found.append((register, byte, thread + within // size))
        return found

    def _verify_result(self, row: ProductForm) -> None:
        c, steps = self.fragments[2], self.fragments[1].shape[0] // row.shape.k
        layout = row.layout("d")
        expected = FragmentType.of("acc", *c.shape, type_of_element(row.d), layout)
        if row.c == row.d and self.d.type != c:
            raise VerifyException(f"expected D of the type of C, {c}, got {self.d.type}")
        if self.d.type != c and self.d.type != expected:
            raise VerifyException(f"expected D to be {expected}, got {self.d.type}")
        if row.c != row.d and steps > 1:
            raise VerifyException(f"expected one step along k where C and D have different types, got {steps}")

    def _verify_scales(self, row: ProductForm) -> None:
        scale = row.scale
        if scale is None:
            if self.selectors is not None:
                raise VerifyException(f"{row.spelling} has no scales to select")
            return
        if len(self.scaling) != 2 or len(self.scale_selectors) != 4:
            raise VerifyException(f"{row.spelling} takes scales of A and of B, with a byte-id and a thread-id each")
        (down, deep), (_, across) = self.fragments[0].tiles, self.fragments[1].tiles
        for role, operand, tiles, chosen in (
            ("a", self.scaling[0], (down, deep), self.scale_selectors[:2]),
            ("b", self.scaling[1], (deep, across), self.scale_selectors[2:]),
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

    # Text

    @classmethod
    def parse_words(cls, parser: Parser) -> dict[str, Attribute]:
        """The shape and the words after it, as properties."""
        found: dict[str, Attribute] = {"shape": StringAttr(parser.parse_identifier(" as the shape of the instruction"))}
        known = [word for word, name in _PROPERTY.items() if name in cls.word_names()]
        position = parser.pos
        while (word := parser.parse_optional_keyword_in(known)) is not None:
            name = _PROPERTY[word]
            if name in found:
                parser.raise_error(f"'{word}' says again what another word has said", position)
            found[name] = UnitAttr() if name in FLAGS else StringAttr(word)
            position = parser.pos
        return found

    @classmethod
    def word_names(cls) -> tuple[str, ...]:
        """The properties of `WORDS` that the operation has."""
        properties = cls.get_irdl_definition().properties
        return tuple(name for name in WORDS if name in properties)

    def print_words(self, printer: Printer) -> None:
        """What `parse_words` reads."""
        words = [self.shape.data, *(self._word(name) for name in self.word_names())]
        printer.print_string(f" {' '.join(filter(None, words))} ")

    def print_scales(self, printer: Printer) -> None:
        """` scaled %sa[0, 1], %sb[2, 3]`, where there are scales."""
        selectors = self.scale_selectors
        for i, scale in enumerate(self.scaling):
            printer.print_string(", " if i else " scaled ")
            printer.print_ssa_value(scale)
            printer.print_string(f"[{', '.join(map(str, selectors[2 * i : 2 * i + 2]))}]")

    def print_types(self, printer: Printer) -> None:
        """The attributes and types: those of the operands, and that of D where it is not C's."""
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list(self.operand_types, printer.print_attribute)
        if self.d.type != self.operands[2].type:
            printer.print_string(" -> ")
            printer.print_attribute(self.d.type)


def parse_selected(parser: Parser) -> tuple[UnresolvedOperand, list[int]]:
    """Reads `%value[0, 1]`."""
    value = parser.parse_unresolved_operand()
    numbers = parser.parse_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False)
    )
    return value, numbers


def parse_scales(parser: Parser, properties: dict[str, Attribute]) -> list[UnresolvedOperand]:
    """Reads what `print_scales` prints; the selectors become a property."""
    if parser.parse_optional_keyword("scaled") is None:
        return []
    found = parser.parse_comma_separated_list(parser.Delimiter.NONE, lambda: parse_selected(parser))
    properties["selectors"] = DenseArrayBase.from_list(i64, [n for _, numbers in found for n in numbers])
    return [value for value, _ in found]


def word_properties(words: Sequence[str]) -> dict[str, Attribute]:
    """Words of the text as properties.

    Raises:
        VerifyException: for a word that there is not.
    """
    for word in words:
        if word not in _PROPERTY:
            raise VerifyException(f"expected one of {', '.join(_PROPERTY)}, got '{word}'")
    return {_PROPERTY[w]: UnitAttr() if _PROPERTY[w] in FLAGS else StringAttr(w) for w in words}


def selection(numbers: Sequence[int]) -> dict[str, Attribute]:
    """byte-id and thread-id of A and of B as a property; nothing where there are none."""
    return {"selectors": DenseArrayBase.from_list(i64, list(numbers))} if numbers else {}


def parse_types(
    parser: Parser, operands: Sequence[UnresolvedOperand], needed: int, position: int
) -> tuple[Sequence[SSAValue], Attribute]:
    """Reads what `print_types` prints after the attributes: the resolved operands, and the type of the result."""
    parser.parse_punctuation(":")
    types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    if len(operands) != needed or len(types) != needed:
        parser.raise_error(
            f"expected {needed} operands and {needed} types, got {len(operands)} and {len(types)}", position
        )
    result = parser.parse_type() if parser.parse_optional_punctuation("->") else types[2]
    return parser.resolve_operands(operands, types, position), result


def _verify_fragment(row: ProductForm, role: str, name: str, expected: str, fragment: FragmentType) -> Labels:
    """How the fragment of an operand calls the instruction's rows and columns."""
    if fragment.role.data != expected:
        raise VerifyException(f"expected {name} to be a fragment of role {expected}, got {fragment.role.data}")
    layout, bits, element = row.layout(role), row.container_bits(role), row.element(role)
    found = labels(fragment.layout.data, layout)
    if found is not None and fragment.bits == bits:
        return found
    in_bytes = ["", ", bytes"]
    raise VerifyException(
        f"expected matrix {name} of {row.shape} {element.name} to be {row.registers(role)} x b{max(32, bits)} per lane "
        f"in layout [{layout}]{in_bytes[bits != element.bits]}, got {fragment.tile_registers} in "
        f"[{fragment.layout.data}]{in_bytes[fragment.bits != element.bits]}"
    )


def key_of(row: ProductForm) -> Key:
    """The key of a row, without what only dense or only sparse rows have."""
    a, b, c, d = (row.element(role).name for role in "abcd")
    vector, scale_type = (row.scale.vector, row.scale.type.name) if row.scale else (0, "")
    return Key(
        row.shape, a, b, c, d, satfinite=row.satfinite, kind=row.kind, scales=vector, scale_type=scale_type
    )  # fmt: skip
