"""What `warp.matmul` and `warp.tile_mma` share: the types that A and B are multiplied as, and the words for how."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, MemRefType, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import IRDLOperation, base, opt_prop_def, prop_def
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ..isa.mma import Variant
from ..isa.product import KIND_F8F6F4
from ..isa.types import ELEMENT_TYPES
from .attributes import BYTE
from .operand_forms import OperandForm, OperandType, form_of, matrix_behind
from .product import WORDS, word_properties
from .scaling import scale_type, scales_of, verify_scaling
from .sparse import metadata_of
from .stored import StoredIntegers, stored_of

WORD_PROPERTIES = ("bit_op", "kind")
WORD_CHOICES = tuple(word for name in WORD_PROPERTIES for word in WORDS[name])
"""The properties that are words before the types, as those of `warp.mma` are, and what they may say."""


@irdl_custom_directive
class FactorTypes(CustomDirective):
    """The text of how A and B are multiplied: `f16 x f16`, the types of the ISA, behind the words for how."""

    types: AttributeVariable
    bit_op: AttributeVariable
    kind: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        words: list[str] = []
        while (word := parser.parse_optional_keyword_in(WORD_CHOICES)) is not None:
            words.append(word)
        types = [parser.parse_identifier(" as the type of A")]
        parser.parse_keyword("x")
        types.append(parser.parse_identifier(" as the type of B"))
        state.properties |= {"types": ArrayAttr(map(StringAttr, types)), **word_properties(words)}

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if isinstance(op, FactorsOp):
            state.print_whitespace(printer)
            printer.print_string(" ".join((*op.words, " x ".join(op.multiplied))))
            state.should_emit_space = True


FACTOR = base(MemRefType) | base(OperandType)
"""The types of A and B in memory."""


class FactorsOp(IRDLOperation):
    """Multiplies A and B: memory, or what an `OperandForm` makes of it."""

    types = prop_def(ArrayAttr[StringAttr])
    bit_op = opt_prop_def(StringAttr)
    kind = opt_prop_def(StringAttr)

    @property
    def given(self) -> tuple[SSAValue, SSAValue]:
        """A and B, each in memory, in registers, or of a form: the first two operands."""
        return self.operands[0], self.operands[1]

    @property
    def forms(self) -> tuple[OperandForm | None, OperandForm | None]:
        """The forms of A and of B; None of what is all in memory, or in registers."""
        a, b = self.given
        return form_of(a), form_of(b)

    @property
    def matrices(self) -> tuple[SSAValue, SSAValue]:
        """Where the elements of A and of B are."""
        a, b = self.given
        return matrix_behind(a), matrix_behind(b)

    @property
    def factors(self) -> tuple[SSAValue, ...]:
        """All that is read of A and of B: their elements, and what is read beside these."""
        beside = [value for form in self.forms if form is not None for value in form.beside]
        return (*self.matrices, *beside)

    @property
    def metadata(self) -> SSAValue | None:
        """The metadata of a sparse A."""
        return metadata_of(self.given[0])

    @property
    def scales(self) -> tuple[SSAValue, ...]:
        """The scales of A and B, or none."""
        return scales_of(*self.given)

    @property
    def b_stored(self) -> StoredIntegers | None:
        """What memory holds of B, if it is converted on the way."""
        return stored_of(self.given[1])

    @property
    def multiplied(self) -> tuple[str, ...]:
        """The ISA's names of the types that A and B are multiplied as."""
        return tuple(t.data for t in self.types)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the text before the types, which say how they are multiplied."""
        held = (self.properties.get(name) for name in WORD_PROPERTIES)
        return tuple(word.data for word in held if isinstance(word, StringAttr))

    @property
    def variant(self) -> Variant:
        """What tells the instructions for this product from others for the same element types.

        Floats of 6 and 4 bits are multiplied by one kind alone where nothing is scaled.
        """
        scaled = scale_type(self.scales)
        narrow = any((row := ELEMENT_TYPES[name]).is_float and row.bits < BYTE for name in self.multiplied)
        kind = self.kind.data if self.kind is not None else KIND_F8F6F4 if narrow and not scaled else ""
        return Variant("" if self.bit_op is None else self.bit_op.data, kind, scaled)

    @property
    def sparsity(self) -> int:
        """How many elements of A there are for each that is stored: 2 if A is sparse, else 1."""
        form, _ = self.forms
        return 1 if form is None else form.sparsity

    def verify_names(self) -> None:
        """Checks that A and B are multiplied as types of the ISA.

        Raises:
            VerifyException: naming the one that is not.
        """
        if len(self.multiplied) != 2:
            raise VerifyException(f"expected a type each for A and B, got {len(self.multiplied)}")
        for name, multiplied in zip("AB", self.multiplied, strict=True):
            if multiplied not in ELEMENT_TYPES:
                raise VerifyException(f"'{multiplied}' is no type of the ISA that {name} could be multiplied as")

    def verify_forms(self) -> None:
        """Checks that A and B are of forms that they may have, together.

        Raises:
            VerifyException: if one is not.
        """
        for side, value, form in zip("AB", self.given, self.forms, strict=True):
            if isinstance(value.type, OperandType) and form is None:
                made = value.owner.name if isinstance(value.owner, Operation) else "a block argument"
                raise VerifyException(
                    f"expected {side} from an operation that says its form, such as warp.sparse, got {made}"
                )
            if form is not None and side not in form.SIDES:
                raise VerifyException(f"expected no {side} of the form {form.name}")
        if self.b_stored is not None and (self.scales or self.metadata is not None):
            raise VerifyException("expected integers to be converted for a dense product without scales")

    def verify_words(self) -> None:
        """Of single bits the text says what is done with them, of other types nothing; a kind is one of the ISA's.

        Raises:
            VerifyException: saying what is expected.
        """
        if self.kind is not None and self.kind.data not in WORDS["kind"]:
            raise VerifyException(f"expected a kind of {', '.join(WORDS['kind'])}, got '{self.kind.data}'")
        verify_scaling(self.variant, self.scales)
        ops = " or ".join(WORDS["bit_op"])
        if self.bit_op is not None and self.bit_op.data not in WORDS["bit_op"]:
            raise VerifyException(f"expected the operation on single bits to be {ops}, got '{self.bit_op.data}'")
        if (self.bit_op is not None) != (self.multiplied == ("b1", "b1")):
            raise VerifyException(f"expected {ops} before b1 x b1, and only there, got {' x '.join(self.multiplied)}")
