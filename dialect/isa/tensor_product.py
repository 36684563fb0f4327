"""What a product in tensor memory is: descriptors of instructions and of matrices in shared memory. PTX ISA 9.7.16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product
from typing import ClassVar, NamedTuple, NoReturn

from ..layouts.layout import Layout
from ..layouts.tensor_memory import metadata, result
from .form import BYTE_IDS, FP8, ORDERED_CODES, PAIR_CODES, BlockScale, ElementType, ProductForm, Shape, element_type
from .row import TENSOR_MEMORY, Bindings, Specific, Target, Version, choice
from .sparse_mma import FOUR_OF_EIGHT, ONE_OF_TWO, TWO_OF_FOUR
from .wgmma import UNIT, DescriptorError, MatrixDescriptor, Place, Wgmma

# Which targets have what. Source: PTX ISA 9.7.16, Target ISA Notes; ptxas 13.5.37 where they differ.

EACH_ALONE: Specific = (
    ("sm_100a", (8, 6)), ("sm_101a", (8, 6)), ("sm_103a", (8, 8)), ("sm_110a", (9, 0)), ("sm_107a", (9, 4)),
)  # fmt: skip
"""The architecture-specific targets of these, for what no family has."""

INTEGERS: Specific = (("sm_100a", (8, 6)), ("sm_101a", (8, 6)), ("sm_110a", (9, 0)))
"""Where there are products of integers."""

SCALED_INPUT: Specific = (("sm_100a", (8, 6)), ("sm_100f", (8, 8)))
"""Where D can be scaled before a product is added to it."""

REDUCING: Specific = (("sm_101a", (8, 8)), ("sm_101f", (8, 8)), ("sm_103f", (8, 8)), ("sm_110f", (9, 0)))
"""Where loads from tensor memory can reduce."""

SM_107F: Specific = (("sm_107f", (9, 4)),)
SM_107A: Specific = (("sm_107a", (9, 4)),)

ALLOCATIONS = (32, 64, 128, 256, 512)
"""The columns that an allocation may have."""

LOAD_SHAPES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
"""The shapes of `ld` and `st`, and the registers of one repetition."""


# The descriptor of a matrix in shared memory. PTX ISA 9.7.16.4.1: that of `wgmma` with other codes of the swizzle.

_SWIZZLES = {(0, 16): 0, (128, 32): 1, (128, 16): 2, (64, 16): 4, (32, 16): 6}
"""Bytes of a swizzle and of what it moves, and the code of the three highest bits."""

_CONSTANT, _CONSTANT_BITS, _SWIZZLE, _ABSOLUTE = 46, 7, 61, 52
_UNUSED = ((1 << 64) - 1) & ~((0x3FFF | 0x3FFF << 16 | 0x3FFF << 32) | _CONSTANT_BITS << 46 | 7 << 49 | 7 << _SWIZZLE)


@dataclass(frozen=True)
class SharedDescriptor(MatrixDescriptor):
    """A matrix in shared memory. A swizzle of 128 bytes moves `atom` bytes together, 16 or 32. Raises DescriptorError,
    as `MatrixDescriptor`, and for another atom."""

    atom: int = UNIT

    def __post_init__(self) -> None:
        MatrixDescriptor.__post_init__(self)
        if (self.swizzle, self.atom) not in _SWIZZLES:
            raise DescriptorError(f"a swizzle of {self.swizzle} bytes does not move {self.atom} bytes together")

    def encode(self) -> int:
        """The descriptor as a 64-bit word."""
        fields = MatrixDescriptor(self.address, self.leading, self.stride, 0, self.base_offset).encode()
        return fields | 1 << _CONSTANT | _SWIZZLES[self.swizzle, self.atom] << _SWIZZLE

    @staticmethod
    def decode(word: int) -> SharedDescriptor:
        """The descriptor with the fields of a 64-bit word. Raises DescriptorError if its constant is another, or bits
        are set that mean nothing."""
        if word >> _ABSOLUTE & 1:
            raise DescriptorError(
                f"bit {_ABSOLUTE} of {word:#018x} asks for absolute addresses, which are not modelled"
            )
        if (constant := word >> _CONSTANT & _CONSTANT_BITS) != 1:
            raise DescriptorError(
                f"expected 0b001 in bits 48:46 of the shared-memory descriptor {word:#018x}, got 0b{constant:03b}"
            )
        if word & _UNUSED:
            raise DescriptorError(f"bits {word & _UNUSED:#x} of the shared-memory descriptor {word:#018x} mean nothing")
        code = word >> _SWIZZLE
        kind = next((kind for kind, number in _SWIZZLES.items() if number == code), None)
        if kind is None:
            raise DescriptorError(
                f"expected a swizzle of {choice(tuple(_SWIZZLES.values()))} in bits 63:61, got {code}"
            )
        address, leading, stride = (((word >> at & 0x3FFF) * UNIT) for at in (0, 16, 32))
        return SharedDescriptor(address, leading, stride, kind[0], word >> 49 & 7, kind[1])

    def offset(self, mn: Place, k: Place, size: int, *, along_mn: bool) -> Place:
        """As that of `wgmma`, except for transposed tiles of 32-byte atoms, whose patterns have four rows of K."""
        if self.atom == UNIT or not along_mn:
            return MatrixDescriptor.offset(self, mn, k, size, along_mn=along_mn)
        byte = mn * size
        return byte % self.span + byte // self.span * self.leading + k % 4 * self.span + k // 4 * self.stride

    def swizzled(self, address: Place) -> Place:
        """The address of a byte after the swizzle."""
        if self.atom == UNIT:
            return MatrixDescriptor.swizzled(self, address)
        return address ^ ((address >> 7) - self.base_offset & 3) << 5


# The instruction descriptor: shape, types and signs of a product. PTX ISA 9.7.16.4.2.

_TYPES: Mapping[str, Mapping[int, str]] = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"},
    "i8": {0: "u8", 1: "s8"},
    "mxf4": {1: "e2m1"},
}
_RESULTS: Mapping[str, Mapping[int, str]] = {
    "f16": {0: "f16", 1: "f32"},
    "f8f6f4": {0: "f16", 1: "f32"},
    "tf32": {1: "f32"},
    "i8": {2: "s32"},
}
"""Types of A and B, and of D, by kind and code."""

WORD_BITS = 32
"""Of a column of tensor memory."""

_DEPTH = {"f16": 16, "tf32": 8, "mxf4": 64, "mxf4nvf4": 64}
"""K of a dense product; 32 of the other kinds."""

_SCALE_TYPES = {0: "ue4m3", 1: "ue8m0"}
_FOURS = ("mxf4", "mxf4nvf4")
_GRANULARITIES = {"tf32": ONE_OF_TWO, **dict.fromkeys(_FOURS, FOUR_OF_EIGHT)}


def types_of(kind: str) -> Mapping[int, str]:
    """The types of A and B of a kind, by their codes."""
    return _TYPES.get("mxf4" if kind in _FOURS else kind, _TYPES["f8f6f4"])


def _code(types: Mapping[int, str], element: ElementType) -> int:
    return next(code for code, name in types.items() if name == element.name)


class InstructionDescriptorError(ValueError):
    """An instruction descriptor with an illegal field."""


@dataclass(frozen=True, slots=True)
class Opcode:
    """The opcode of a product. `vector` is the number of scales of a row, 0 without scales."""

    kind: str
    group: int
    sparse: bool = False
    stationary: bool = False
    vector: int = 0

    @property
    def scaled(self) -> bool:
        """Whether A and B have scales."""
        return self.vector > 0

    @property
    def spelling(self) -> str:
        """The opcode with all its qualifiers."""
        block = {0: "", 4: ".block_scale.block16"}.get(self.vector, ".block_scale.block32")
        return f"{self}{block}"

    def __str__(self) -> str:
        words = (".ws" if self.stationary else "", ".sp" if self.sparse else "")
        return f"tcgen05.mma{''.join(words)}.cta_group::{self.group}.kind::{self.kind}"


@dataclass(frozen=True)
class TensorProduct(ProductForm):
    """One product: the fields of the opcode and of the instruction descriptor. `along_mn` says for A and B whether they
    are contiguous along M or N in shared memory, `negated` whether they are negated. `scale_ids` are the bytes of a
    word that hold their scales."""

    ptx: Version = (8, 6)
    sm: int = 100
    section: str = "9.7.16.10.9"
    only: Specific = TENSOR_MEMORY
    opcode: Opcode = field(kw_only=True)
    along_mn: tuple[bool, bool] = (False, False)
    negated: tuple[bool, bool] = (False, False)
    scale_ids: tuple[int, int] = (0, 0)
    selector: int = 0

    UNIT: ClassVar = "tcgen05 "

    @cached_property
    def spelling(self) -> str:
        """The opcode and the shape."""
        return f"{self.opcode}, {self.shape}"

    @property
    def rows(self) -> int:
        """The rows of A and D that each CTA has."""
        return self.shape.m // self.opcode.group

    @property
    def parts(self) -> int:
        """Into how many parts the columns of D are divided."""
        return self.result.extent("p")

    @property
    def result(self) -> Layout:
        """The layout of D."""
        op = self.opcode
        return result(self.shape.m, op.group, op.stationary, op.sparse)

    @property
    def codes(self) -> tuple[int, ...]:
        """The nibbles of metadata that mean something. 9.7.16.10.8"""
        of_pairs = self.granularity is None or self.granularity.chunk == 2
        return PAIR_CODES if of_pairs else (*ORDERED_CODES, 0b0110)

    def encode(self) -> int:
        """The instruction descriptor."""
        op, types = self.opcode, types_of(self.opcode.kind)
        a, b = (_code(types, kind) for kind in (self.a, self.b))
        word = op.sparse << 2 | a << 7 | b << 10 | self.shape.n >> 3 << 17 | self.shape.m >> 4 << 24
        for at, bits in ((13, self.negated), (15, self.along_mn)):
            word |= bits[0] << at | bits[1] << at + 1
        if self.scale is not None:
            return word | self.scale_ids[1] << 4 | _code(_SCALE_TYPES, self.scale.type) << 23 | self.scale_ids[0] << 29
        return word | self.selector | self.satfinite << 3 | _code(_RESULTS[op.kind], self.d) << 4

    @staticmethod
    def decode(opcode: Opcode, word: int) -> TensorProduct:
        """The product of an instruction descriptor. Raises InstructionDescriptorError naming the bits, what was
        expected there, and what they are."""
        return _Fields(opcode, word).product()


class _Fields(NamedTuple):
    """The state of decoding an instruction descriptor."""

    opcode: Opcode
    word: int

    def bits(self, low: int, count: int = 1) -> int:
        return self.word >> low & (1 << count) - 1

    def fail(self, low: int, count: int, name: str, wanted: str) -> NoReturn:
        where = f"bits {low + count - 1}:{low}" if count > 1 else f"bit {low}"
        raise InstructionDescriptorError(
            f"{self.opcode}: {where} ({name}) of the instruction descriptor {self.word:#010x}: expected {wanted}, got "
            f"{self.bits(low, count)}"
        )

    def choose(self, low: int, count: int, name: str, names: Mapping[int, str]) -> ElementType:
        code = self.bits(low, count)
        if code not in names:
            self.fail(low, count, name, " or ".join(f"{code} ({text})" for code, text in names.items()))
        return element_type(names[code])

    def zero(self, low: int, count: int = 1, name: str = "reserved") -> None:
        if self.bits(low, count):
            self.fail(low, count, name, "0")

    def product(self) -> TensorProduct:
        op, scaled = self.opcode, self.opcode.scaled
        if self.bits(2) != op.sparse:
            self.fail(2, 1, "sparse", f"{int(op.sparse)}, as the opcode says")
        types = types_of(op.kind)
        a, b = self.choose(7, 3, "type of A", types), self.choose(10, 2 if op.kind in _FOURS else 3, "type of B", types)
        d = element_type("f32") if scaled else self.choose(4, 2, "type of D", _RESULTS[op.kind])
        integers = op.kind == "i8"
        for at in (13, 14) if integers else ():
            self.zero(at, 1, "negate")
        self._reserved()
        shape = self._shape(a, b)
        granularity = _GRANULARITIES.get(op.kind, TWO_OF_FOUR) if op.sparse else None
        narrow = op.kind not in ("f16", "tf32", "i8")
        bits = a.bits if not narrow else 8
        return TensorProduct(
            shape, a, b, d, d, opcode=op, satfinite=bool(integers and self.bits(3)), kind=op.kind if narrow else "",
            scale=BlockScale(op.vector, self.choose(23, 1, "type of the scales", _SCALE_TYPES)) if scaled else None,
            granularity=granularity,
            metadata=metadata(shape.m, op.group, op.stationary, bits) if op.sparse else None,
            along_mn=(bool(self.bits(15)), bool(self.bits(16))), negated=(bool(self.bits(13)), bool(self.bits(14))),
            scale_ids=(self.bits(29, 2), self.bits(4, 2)) if scaled else (0, 0),
            selector=0 if scaled else self.bits(0, 2),
        )  # fmt: skip

    def _reserved(self) -> None:
        op = self.opcode
        if not op.sparse or op.kind not in ("f16", "tf32"):
            self.zero(0, 2, "sparsity selector")
        if op.scaled:
            self._scales()
        else:
            if op.kind != "i8":
                self.zero(3, 1, "saturate")
            self.zero(6)
            self.zero(23)
            self.zero(29)
            if not op.stationary:
                self.zero(30, 2, "maximum shift of .ws")

    def _scales(self) -> None:
        op = self.opcode
        for at, name in ((4, "byte-id of the scales of B"), (29, "byte-id of the scales of A")):
            if self.bits(at, 2) not in BYTE_IDS[op.vector]:
                self.fail(at, 2, name, choice(BYTE_IDS[op.vector]).replace("/", " or "))
        wanted = {"mxf8f6f4": 1, "mxf4": 1}.get(op.kind, 1 if op.vector == 2 else None)
        if wanted is not None and self.bits(23) != wanted:
            self.fail(23, 1, "type of the scales", f"{wanted} ({_SCALE_TYPES[wanted]})")
        if op.kind in _FOURS:
            self.zero(15, 2, "MN-major")
        self.zero(24, 3)
        self.zero(31, 1, "K")

    def _shape(self, a: ElementType, b: ElementType) -> Shape:
        op = self.opcode
        m, n = self.bits(24, 5) << 4, self.bits(17, 6) << 3
        rows, columns = _sizes(op)
        if m not in rows:
            self.fail(24, 5, "M / 16", " or ".join(str(size // 16) for size in rows))
        if n not in columns:
            uneven = len(columns) % 2 and op.kind == "i8"
            listed = f"{columns[0] // 8} to {columns[-1] // 8} in steps of {(columns[1] - columns[0]) // 8}"
            self.fail(17, 6, "N / 8", "1, 2, 3, 4 or an even number up to 32" if uneven else listed)
        if self.bits(16) and b.bits <= 8 and n % (16 * op.group):
            self.fail(17, 6, "N / 8", f"a multiple of {2 * op.group} where B of 8 bits lies along N")
        return Shape(m, n, _DEPTH.get(op.kind, 32) * (2 if op.sparse else 1))


_KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", **dict.fromkeys(FP8, "f8f6f4"), "s8": "i8", "u8": "i8"}
"""The kind that multiplies elements of a type."""


@cache
def of_warpgroup(row: Wgmma) -> TensorProduct | None:
    """The product of one CTA, with D in tensor memory, that computes the same as a product of warpgroups; None if there
    is none. Its D has 64 rows, on 16 lanes of each warp, or 128, on 32. A warp has the same rows as in a warpgroup."""
    kind = row.kind or _KINDS.get(row.a.name, "")
    if not kind or (row.kind or _KINDS.get(row.b.name)) != kind:
        return None
    if row.d.name not in _RESULTS.get(kind, _RESULTS["tf32"]).values():
        return None
    opcode = Opcode(kind, 1, row.sparse, vector=row.scale.vector if row.scale else 0)
    rows, columns = _sizes(opcode)
    if row.shape.m not in rows or row.shape.n not in columns or row.shape.n % (row.shape.m // 8):
        return None  # 9.7.16.2.1: of 128 rows N in steps of 16
    if row.sparse and row.shape.m != rows[-1]:
        return None  # of 64 rows the metadata would lie on half of the lanes
    section, only = f"9.7.16.10.9.{1 + row.sparse}", INTEGERS if kind == "i8" else TENSOR_MEMORY
    bits = row.a.bits if kind in _RESULTS and kind != "f8f6f4" else 8
    places = metadata(row.shape.m, 1, False, bits) if row.sparse else None
    return TensorProduct(
        row.shape, row.a, row.b, row.c, row.d, section=section, only=only, satfinite=row.satfinite, kind=row.kind,
        scale=row.scale, granularity=row.granularity, metadata=places, opcode=opcode,
    )  # fmt: skip


def of_pair(product: TensorProduct) -> TensorProduct:
    """The product of two CTAs, each of which has the rows of one, and half of its columns of B. 9.7.16.10.9.1."""
    shape = product.shape
    return replace(product, opcode=replace(product.opcode, group=2), shape=Shape(2 * shape.m, shape.n, shape.k))


def in_tensor_memory(row: Wgmma, target: Target) -> bool:
    """Whether a target multiplies what a warpgroup does with D in tensor memory, in words of 32 bits."""
    product = of_warpgroup(row)
    return product is not None and row.d.bits == WORD_BITS and product.runs_on(target)


def opcodes() -> Iterator[Opcode]:
    """What opcodes may say, plain products first."""
    for kind, sparse in product((*_RESULTS, "mxf8f6f4", *_FOURS), (False, True)):
        vectors = {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (2, 4)}.get(kind, (0,))
        for group, vector in product((1, 2), vectors):
            yield Opcode(kind, group, sparse, vector=vector)
        if kind in _RESULTS:
            yield Opcode(kind, 1, sparse, stationary=True)


@cache
def products() -> tuple[TensorProduct, ...]:
    """Of each opcode a product of every M and all types, with the least N."""
    return tuple(TensorProduct.decode(opcode, word) for opcode in opcodes() for word in _words(opcode))


def _words(op: Opcode) -> Iterator[int]:
    rows, columns = _sizes(op)
    types, results = types_of(op.kind), _RESULTS.get(op.kind, {0: ""})
    scales = {4: (0, 1), 2: (1,), 1: (1,)}.get(op.vector, (0,))
    for m, a, b, d, scale in product(rows, types, types, results, scales):
        yield op.sparse << 2 | d << 4 | a << 7 | b << 10 | columns[0] >> 3 << 17 | scale << 23 | m >> 4 << 24


def _sizes(op: Opcode) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The legal M and N. PTX ISA 9.7.16.2.1."""
    if op.stationary:
        return (32, 64, 128), (64, 128) if op.sparse else (64, 128, 256)
    step = 8 * op.group
    if op.kind == "i8":
        columns = (8, 16, 24, *range(32, 257, 16)) if op.group == 1 else tuple(range(32, 257, 32))
    else:
        columns = tuple(range(step, 257, step))
    if op.scaled:
        return ((128,) if op.group == 1 else (256,) if op.sparse else (128, 256)), columns
    return ((64, 128) if op.group == 1 else (128, 256)), columns


VECTORS = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4, "block16": 4, "block32": 2}
"""Scales of a row, by the qualifier; one of `mxf8f6f4` with `block32` or none, two of `mxf4` with none."""


def opcode_of(bindings: Bindings) -> Opcode:
    """What the qualifiers of a product say."""
    kind = bindings["K"].removeprefix("kind::")
    vector = {"mxf8f6f4": 1, "mxf4": 2}.get(kind, 0)
    if kind == "mxf4nvf4":
        vector = VECTORS[bindings["SCALES"]]
    return Opcode(kind, int(bindings["G"][-1]), bool(bindings.get("Z")), bool(bindings.get("W")), vector)
