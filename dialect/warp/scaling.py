"""Blocks that have scales: `warp.scaled`, an operand of products, and `warp.load_scales`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def
from xdsl.utils.exceptions import VerifyException

from ..isa.block_scale import SCALES_OF_WORD
from ..isa.mma import Variant, blocks
from ..isa.types import ELEMENT_TYPES
from .attributes import SCALES, SHARED_SPACE, element_row, fragment_of, memory_of, memory_space
from .memory import verify_indices, verify_one_warp
from .op_shapes import FragmentLoad
from .operand_forms import MEMORY, OperandForm, OperandType, form_of

STORED_AS = {held: scale for scale, held in SCALES.items()}
"""The type of scales that memory of another type holds."""

AXES = {"A": "row", "B": "column"}
"""What of A and of B has blocks along k."""


@irdl_op_definition
class ScaledOp(OperandForm):
    """An A whose rows are divided into blocks with scales, or a B whose columns are::

        %a = warp.scaled %A, %SA : memref<256x128xf4E2M1FN>, memref<256x4xf8E8M0FNU>
        %b = warp.scaled %B, %SB : memref<320x128xf4E2M1FN>, memref<320x4xf8E8M0FNU>
        warp.matmul mxf4 e2m1 x e2m1 %a, %b init 0.0 : f32 into %D maps [...] : !warp.operand<...>, ...

    The scales are a matrix with a row for each row of A, or for each column of B, after the dimensions of the batch.
    The kind of the product and the type of the scales determine how many elements along k share a scale (PTX ISA
    9.7.14.3). Scales of f8E4M3FN are read without their sign, as ue4m3.
    """

    name = "warp.scaled"

    memory = operand_def(MEMORY)
    scales = operand_def(MemRefType)

    assembly_format = "$memory `,` $scales attr-dict `:` type($memory) `,` type($scales)"

    def __init__(self, memory: SSAValue, scales: SSAValue):
        super().__init__(operands=[memory, scales], result_types=[OperandType(memory_of(memory))])

    def of(self, memory: SSAValue, beside: Sequence[SSAValue]) -> ScaledOp:
        (scales,) = beside
        return ScaledOp(memory, scales)

    def verify_sizes(
        self, side: str, multiplied: str, variant: Variant, sizes: Sequence[int], order: Sequence[int]
    ) -> None:
        (*rows, k), block, shape = sizes, blocks()[variant], memory_of(self.scales).get_shape()
        expected = (*rows, -(-k // block) if k >= 0 else -1)
        pairs = zip(shape, expected, strict=False)
        if len(shape) != len(expected) or any(known != size and min(known, size) >= 0 for known, size in pairs):
            text, what = "x".join("?" if size < 0 else str(size) for size in expected), AXES[side]
            raise VerifyException(
                f"expected {text} scales of {side}, one for each {block} elements of a {what}, got {self.scales.type}"
            )


def scales_of(a: SSAValue, b: SSAValue) -> tuple[SSAValue, ...]:
    """The scales of A and of B, of those that have some."""
    forms = (form_of(value) for value in (a, b))
    return tuple(form.scales for form in forms if isinstance(form, ScaledOp))


def scale_type(scales: Sequence[SSAValue]) -> str:
    """The ISA's name of the type of scales; empty where there are none, or of no type that it knows."""
    row = element_row(memory_of(scales[0]).element_type) if scales else None
    return "" if row is None else STORED_AS.get(row.name, row.name)


def verify_scaling(variant: Variant, scales: Sequence[SSAValue]) -> None:
    """Checks that there are scales for a kind that has some, of a type that it takes.

    Raises:
        VerifyException: saying what the kind takes.
    """
    if not (scales or variant.kind):
        return
    legal = [v.scale_type for v in blocks() if v.kind == variant.kind]
    if not scales:
        if legal:
            raise VerifyException(f"expected scales of A and B for kind {variant.kind}")
        return
    kinds = dict.fromkeys(v.kind for v in blocks())
    if not legal:
        raise VerifyException(f"expected a kind for scales, {', '.join(kinds)}; got '{variant.kind}'")
    if len(scales) != 2:
        raise VerifyException(f"expected scales of A and of B, got {len(scales)} operands")
    first, second = (memory_of(value).element_type for value in scales)
    if first != second:
        raise VerifyException(f"expected scales of A and B of one type, got {first} and {second}")
    if variant.scale_type not in legal:
        raise VerifyException(f"expected scales of {' or '.join(map(_stored, legal))} for {variant.kind}, got {first}")


def _stored(scale: str) -> str:
    """The MLIR type that holds scales of a type."""
    return ELEMENT_TYPES[SCALES.get(scale, scale)].mlir


@irdl_op_definition
class LoadScalesOp(FragmentLoad):
    """Reads the scales of A or B from a tile in shared memory. Each lane reads a word of each base tile::

        %s = warp.load_scales %S[%stage, %row, %column] : memref<3x128x4xf8E8M0FNU, ..., 3> -> !warp.fragment<...>

    A row of memory has the scales of a row of A, or of a column of B, in the order of k. A lane reads four of them,
    beginning at `%column`, which is a multiple of four. The byte-ids of an instruction select among these four. The
    base tiles of the fragment follow each other along m or n.
    """

    name = "warp.load_scales"

    @property
    def axis(self) -> str:
        """The axis of the fragment that the rows of memory run across: "r" for scales of A, "c" for those of B."""
        return "r" if any(bit.axis == "r" for bit in self.fragment.type.layout.data.lane) else "c"

    @property
    def what(self) -> str:
        """What has a scale for each of its blocks, in words."""
        return "rows of A" if self.axis == "r" else "columns of B"

    def verify_(self) -> None:
        memory, fragment = memory_of(self.memory), fragment_of(self.fragment)
        verify_one_warp("scales", fragment)
        verify_indices("the memref", memory, self.indices)
        if memory_space(memory) != SHARED_SPACE:
            raise VerifyException(f"expected scales in shared memory (memory space {SHARED_SPACE}), got {memory}")
        along_k = fragment.tiles[self.axis == "r"]
        if fragment.role.data != "scale" or fragment.tile_registers != 1 or along_k != 1:
            raise VerifyException(f"expected a fragment of scales, one base tile deep, got {fragment}")
        if memory.element_type != fragment.element_type:
            raise VerifyException(f"expected memory of {fragment.element_type}, got {memory}")
        if (columns := memory.get_shape()[-1]) % SCALES_OF_WORD:
            raise VerifyException(f"expected rows of whole words of {SCALES_OF_WORD} scales, got {columns} in {memory}")
