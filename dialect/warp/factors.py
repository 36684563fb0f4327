"""What `warp.matmul` and `warp.tile_mma` share: the types that A and B are multiplied as, and the words for how."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, opt_prop_def, prop_def
from xdsl.utils.exceptions import VerifyException

from ..isa.mma import Variant
from ..isa.product import KIND_F8F6F4
from ..isa.types import ELEMENT_TYPES
from .attributes import BYTE, Memory, element_row
from .product import WORDS
from .scaling import scale_type, verify_scaling
from .stored import StoredIntegers

SPARSITY = 2
"""Elements of a sparse A for each stored one, in every pattern of `mma.sp` (PTX ISA 9.7.14.6)."""

WORD_PROPERTIES = ("bit_op", "kind")
WORD_CHOICES = tuple(word for name in WORD_PROPERTIES for word in WORDS[name])
"""The properties that are words before the types, as those of `warp.mma` are, and what they may say."""


class FactorsOp(IRDLOperation):
    """Multiplies A, which may be sparse, and B, which may be scaled with it."""

    types = prop_def(ArrayAttr[StringAttr])
    bit_op = opt_prop_def(StringAttr)
    kind = opt_prop_def(StringAttr)
    stored = opt_prop_def(StringAttr)
    zero = opt_prop_def(IntegerAttr)

    @property
    def b_stored(self) -> StoredIntegers | None:
        """What memory holds of B, if it is converted on the way."""
        return StoredIntegers.of(self.stored, self.zero)

    @property
    def metadata(self) -> SSAValue | None:
        """The metadata of a sparse A."""
        raise TypeError(f"{type(self).__name__} has no A")

    @property
    def scaled_by(self) -> Sequence[SSAValue]:
        """The scales of A and B, or none."""
        raise TypeError(f"{type(self).__name__} has no scales")

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
        scaled = scale_type(self.scaled_by)
        narrow = any((row := ELEMENT_TYPES[name]).is_float and row.bits < BYTE for name in self.multiplied)
        kind = self.kind.data if self.kind is not None else KIND_F8F6F4 if narrow and not scaled else ""
        return Variant("" if self.bit_op is None else self.bit_op.data, kind, scaled)

    @property
    def sparsity(self) -> int:
        """How many elements of A there are for each that is stored: 2 if A is sparse, else 1."""
        return 1 if self.metadata is None else SPARSITY

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

    def verify_converted(self, b: Memory) -> None:
        """Checks the types of a B that is converted on the way, and that lies in this memory.

        Raises:
            VerifyException: if there is no such conversion, or scales or metadata beside it.
        """
        if self.b_stored is not None:
            self.b_stored.verify(self.multiplied[1], element_row(b.element_type))
            if self.scaled_by or self.metadata is not None:
                raise VerifyException("expected integers to be converted for a dense product without scales")

    def verify_words(self) -> None:
        """Of single bits the text says what is done with them, of other types nothing; a kind is one of the ISA's.

        Raises:
            VerifyException: saying what is expected.
        """
        if self.kind is not None and self.kind.data not in WORDS["kind"]:
            raise VerifyException(f"expected a kind of {', '.join(WORDS['kind'])}, got '{self.kind.data}'")
        verify_scaling(self.variant, self.scaled_by)
        ops = " or ".join(WORDS["bit_op"])
        if self.bit_op is not None and self.bit_op.data not in WORDS["bit_op"]:
            raise VerifyException(f"expected the operation on single bits to be {ops}, got '{self.bit_op.data}'")
        if (self.bit_op is not None) != (self.multiplied == ("b1", "b1")):
            raise VerifyException(f"expected {ops} before b1 x b1, and only there, got {' x '.join(self.multiplied)}")
