"""What the bits of matrix and instruction descriptors, and of a tensor map, say, field by field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...dialect.isa.row import Bindings
from ...dialect.isa.tensor_map import SIZE, PixelBox, TensorMapError, TensorMapFields
from ...dialect.isa.wgmma import UNIT, DescriptorError, MatrixDescriptor
from ..base.errors import ArgumentError

if TYPE_CHECKING:
    from ...dialect.isa.tensor_product import TensorProduct

_HEX = re.compile(r"(0x)?[0-9a-fA-F_]+")
_DESCRIPTOR_BYTES = 8
_PRODUCT = "tcgen05.mma"


def explain(value: int | bytes | str) -> str:
    """The fields of a matrix descriptor of `wgmma` or `tcgen05` (a number, or 8 bytes), of an instruction descriptor,
    or of a tensor map (128 bytes), one a line.

    A string is a number as in `0x4000004000010000`; the opcode of a `tcgen05.mma` and its instruction descriptor; 256
    hexadecimal digits, byte by byte as in memory; 32 words of 32 bits with spaces between; or the name of a file of 8
    or 128 bytes.

    Raises:
        ArgumentError: for anything else, and for reserved bits that are set.
    """
    if not isinstance(cast("object", value), int | bytes | str):
        raise ArgumentError(f"expected a number, bytes or a string, got {type(value).__name__}")
    if isinstance(value, str) and value.startswith(_PRODUCT):
        return "\n".join(_instruction(value))
    if isinstance(value, str):
        value = _read(value)
    try:
        if isinstance(value, bytes) and len(value) == SIZE:
            return "\n".join(_map(value))
        if isinstance(value, bytes) and len(value) != _DESCRIPTOR_BYTES:
            raise ArgumentError(f"expected {_DESCRIPTOR_BYTES} bytes of a matrix descriptor or {SIZE} of a tensor map, "
                                f"got {len(value)}")  # fmt: skip
        word = value if isinstance(value, int) else int.from_bytes(value, "little")
        if not 0 <= word < 1 << 64:
            raise ArgumentError(f"expected a matrix descriptor of 64 bits, got {word:#x}")
        return "\n".join(_shared_descriptor(word) if word >> 46 & 7 else _descriptor(word))
    except (DescriptorError, TensorMapError) as error:
        raise ArgumentError(str(error)) from None


def _read(text: str) -> int | bytes:
    """The number or the bytes that a text stands for."""
    words = text.replace(",", " ").split()
    if words and all(_HEX.fullmatch(word) for word in words):
        if len(words) == SIZE // 4:
            return b"".join((int(word, 16) & 0xFFFFFFFF).to_bytes(4, "little") for word in words)
        digits = "".join(words).removeprefix("0x").replace("_", "")
        if len(digits) == 2 * SIZE:
            return bytes.fromhex(digits)
        if len(words) == 1 and not Path(text).is_file():
            return int(text, 10 if text.isdecimal() else 16)
    path = Path(text)
    if not path.is_file():
        raise ArgumentError(f"expected a number, {2 * SIZE} hexadecimal digits or a file, got {text[:80]!r}")
    data = path.read_bytes()
    if len(data) in (_DESCRIPTOR_BYTES, SIZE):
        return data
    try:
        return _read_digits(data.decode("ascii"))
    except UnicodeDecodeError:
        return data


def _read_digits(text: str) -> int | bytes:
    if not all(_HEX.fullmatch(word) for word in text.split()):
        raise ArgumentError("the file has neither 8 nor 128 bytes, nor hexadecimal digits")
    return _read(text.strip())


# Matrix descriptors


def _descriptor(word: int) -> Iterator[str]:
    how = MatrixDescriptor.decode(word)
    yield f"matrix descriptor {word:#018x}"
    yield from _fields(how, "63:62", f"{how.swizzle} bytes")


def _fields(how: MatrixDescriptor, swizzle_bits: str, swizzle: str, constant: str = "") -> Iterator[str]:
    """The fields of a descriptor, with what its swizzle is called, and what they mean."""
    for bits, name, what in (
        ("13:0", "start address", f"{how.address:#x}"),
        ("29:16", "leading offset", f"{how.leading} bytes"),
        ("45:32", "stride offset", f"{how.stride} bytes"),
        ("48:46", "constant", constant),
        ("51:49", "base offset", f"{how.base_offset}"),
        (swizzle_bits, "swizzle", swizzle if how.swizzle else "none"),
    ):
        if what:
            yield f"  {bits:>5}  {name:<14} {what}"
    yield from (f"  {line}" for line in _meaning(how))


def _meaning(how: MatrixDescriptor) -> Iterator[str]:
    """Where the rows of a matrix lie, by which way they go."""
    atom = f"8 rows of {how.span} bytes, {8 * how.span} bytes in all"
    if how.swizzle:
        units = how.swizzle // UNIT
        yield f"{atom}; bits {6 + units.bit_length() - 1}:7 of the address change bits {2 + units.bit_length()}:4"
        yield f"K-major: the next 8 rows of M or N after {how.stride} bytes; the leading offset is not used"
        yield (
            f"MN-major: the next {how.swizzle} bytes along M or N after {how.leading} bytes, the next 8 of K after "
            f"{how.stride}"
        )
    else:
        yield f"core matrices: {atom}"
        yield (
            f"K-major: the next {UNIT} bytes along K after {how.leading} bytes, the next 8 rows of M or N after "
            f"{how.stride}"
        )
        yield f"MN-major: the next {UNIT} bytes along M or N after {how.stride}, the next 8 of K after {how.leading}"
    if how.row_of_pattern:
        yield (
            f"inside the pattern of the swizzle: the matrix begins in row {how.row_of_pattern} of it; expected an "
            f"address that is a multiple of {8 * how.span}, or a base offset that says where the pattern begins"
        )


# Descriptors of products in tensor memory


def _shared_descriptor(word: int) -> Iterator[str]:
    """A description of a shared-memory descriptor of `tcgen05`, which a constant distinguishes from one of `wgmma`."""
    from ...dialect.isa.tensor_product import SharedDescriptor

    how = SharedDescriptor.decode(word)
    moved = f", which moves {how.atom} bytes together" if how.atom != UNIT else ""
    yield f"shared-memory descriptor of tcgen05 {word:#018x}"
    yield from _fields(how, "63:61", f"{how.swizzle} bytes{moved}", "0b001")


def _instruction(text: str) -> Iterator[str]:
    """The opcode of a product, and its instruction descriptor."""
    from ...dialect.isa.tensor_product import InstructionDescriptorError, TensorProduct, opcode_of
    from ...dialect.ptx.instructions import find

    opcode, _, number = text.partition(" ")
    rows = find(opcode)
    if not rows or not _HEX.fullmatch(number.strip()):
        raise ArgumentError(f"expected the opcode of a tcgen05.mma and a number, got {text[:80]!r}")
    bindings: Bindings = rows[0][1]
    word = int(number, 10 if number.strip().isdecimal() else 16)
    try:
        product = TensorProduct.decode(opcode_of(bindings), word)
    except InstructionDescriptorError as error:
        raise ArgumentError(str(error)) from None
    yield f"instruction descriptor {word:#010x} of {product.opcode}"
    fields = [("shape", str(product.shape))]
    fields += [(name, _operand(t.name, product, i)) for i, (name, t) in enumerate((("A", product.a), ("B", product.b)))]
    fields.append(("D", product.d.name))
    if product.scale is not None:
        first, second = product.scale_ids
        what = f"{product.scale.vector} a row of {product.scale.type.name}"
        fields.append(("scales", f"{what}, from byte {first} of the words of A and {second} of B"))
    if product.granularity is not None:
        fields.append(("sparse", f"{product.granularity}, selector {product.selector}"))
    if product.satfinite:
        fields.append(("saturate", "yes"))
    yield from (f"  {name:<9} {what}" for name, what in (*fields, ("lanes", f"D lies as [{product.result}]")))


def _operand(name: str, product: TensorProduct, number: int) -> str:
    """The type of A or B, its sign, and how it lies."""
    sign = ", negated" if product.negated[number] else ""
    return f"{name}{sign}, {'MN' if product.along_mn[number] else 'K'}-major"


# Tensor maps


def _map(data: bytes) -> Iterator[str]:
    map_ = TensorMapFields.decode(data)
    rank = len(map_.sizes)
    yield f"tensor map of {rank} dimension{'s' if rank > 1 else ''}, fastest first"
    for name, what in (
        ("address", f"{map_.address:#x}"),
        ("elements", f"{map_.element.name}, {map_.element.size} bytes"),
        ("sizes", _listed(map_.sizes)),
        ("strides", f"{_listed(map_.strides)} bytes" if map_.strides else "none"),
        *_box(map_),
        ("steps", _listed(map_.steps)),
        ("swizzle", f"{map_.swizzle} bytes" if map_.swizzle else "none"),
        ("interleave", f"{map_.interleave} bytes" if map_.interleave else "none"),
        ("fill", "NaN" if map_.nan_fill else "zero"),
        ("moves", f"{map_.moved_bytes} bytes: what an mbarrier is to expect"),
    ):
        yield f"  {name:<10} {what}"
    encoded = map_.encode()
    other = [i for i in range(0, SIZE, 4) if data[i : i + 4] != encoded[i : i + 4]]
    if other:
        words = (f"{i // 4} ({int.from_bytes(data[i : i + 4], 'little'):#010x})" for i in other)
        yield f"  words with bits that are not known here: {', '.join(words)}"


def _box(map_: TensorMapFields) -> Iterator[tuple[str, str]]:
    if not isinstance(map_.box, PixelBox):
        yield "box", _listed(map_.box)
        return
    ranges = zip(map_.box.lower, map_.box.last(map_.sizes), strict=True)
    yield "pixels", f"{map_.box.pixels} of {map_.box.channels} channels each, im2col mode"
    yield "bounds", " x ".join(f"{first}..{last}" for first, last in ranges)


def _listed(values: tuple[int, ...]) -> str:
    return " x ".join(map(str, values))
