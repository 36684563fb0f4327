"""Products of the fifth generation's tensor cores, of every kind and shape, against float64 and integers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tensor_cores import Floats, Kernel, close, halved, padded, put, value

from warploom.dialect.isa.form import BlockScale, Shape, element_type
from warploom.dialect.isa.tensor_product import Opcode, SharedDescriptor, TensorProduct
from warploom.runtime import check_ptx


def matrix(name: str, rows: int, k: int, random: np.random.Generator) -> tuple[Floats, NDArray[np.uint8]]:
    """Random numbers, and the bytes of each row: of 4 and 6 bits 16 in each 16 bytes, as `pack` makes them closer."""
    if name in ("f16", "bf16", "tf32"):
        words = random.standard_normal((rows, k)).astype(np.float32).view(np.uint32)
        words &= np.uint32({"tf32": 0xFFFFE000, "bf16": 0xFFFF0000, "f16": 0xFFFFE000}[name])
        numbers = words.view(np.float32)
        kind = {"tf32": words, "bf16": (words >> 16).astype(np.uint16), "f16": numbers.astype(np.float16)}[name]
        return (numbers if name != "f16" else kind).astype(np.float64), kind.view(np.uint8).reshape(rows, -1)
    bits = element_type(name).bits
    table = np.array([value(name, code) for code in range(1 << bits)])
    codes = random.choice(np.flatnonzero(np.isfinite(table)), (rows, k)).astype(np.uint8)
    return table[codes], codes if bits == 8 else padded(codes, bits)


@dataclass
class Product:
    """One product: its kernel, operands and what float64 makes of them."""

    product: TensorProduct
    seed: int = 5
    in_memory: bool = False
    words: str = ""
    tail: str = ""
    swizzle: int = 0
    along_mn: tuple[bool, bool] = (False, False)
    image: NDArray[np.uint8] = field(init=False)
    issue: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        p, self.random = self.product, np.random.default_rng(self.seed)
        self.ctas = p.opcode.group
        self.images = [self.random.integers(0, 256, 49152).astype(np.uint8) for _ in range(self.ctas)]
        self.at = 0
        kept = p.stored_k
        self.a, rows_a = matrix(p.a.name, p.shape.m, kept, self.random)
        self.b, rows_b = matrix(p.b.name, p.shape.n, p.shape.k, self.random)
        if p.a.bits == 4 and p.kind.startswith("mxf4"):
            rows_a, rows_b = (halved(self._codes(numbers)) for numbers in (self.a, self.b))
        left = self._split(rows_a, "%q9", p.a.bits, self.along_mn[0])
        self._split(rows_b, "%q10", p.b.bits, self.along_mn[1])
        if self.in_memory:
            self._copy(rows_a, p)
        del left

    def _codes(self, numbers: Floats) -> NDArray[np.uint8]:
        table = {value("e2m1", code): code for code in range(16)}
        return np.vectorize(table.get)(numbers).astype(np.uint8)

    def _split(self, rows: NDArray[np.uint8], name: str, bits: int, along_mn: bool) -> None:
        """Each CTA has its part of the rows in its shared memory."""
        parts = np.split(rows, self.ctas)
        how = self._how(parts[0], bits, along_mn)
        for image, part in zip(self.images, parts, strict=True):
            size = max(1, bits // 8) if along_mn else 1
            elements = part.reshape(len(part), -1, size)
            view = np.ascontiguousarray(elements).view(f"u{size}")[..., 0]
            put(image, view, how.encode(), along_mn=along_mn)
        self.describe(name, how)

    def _how(self, rows: NDArray[np.uint8], bits: int, along_mn: bool) -> SharedDescriptor:
        start, (mn, width) = self.at, rows.shape
        if along_mn:
            size = bits // 8
            k, span = width // size, 128
            self.at += -(-mn * size // span) * max(k, 8) * span
            atom = 32 if bits == 32 else 16
            group = 4 if bits == 32 else 8
            return SharedDescriptor(start, k // group * group * span, group * span, 128, 0, atom)
        if self.swizzle:
            self.at += mn * self.swizzle
            return SharedDescriptor(start, 16, 8 * self.swizzle, self.swizzle)
        self.at += -(-mn * width // 1024) * 1024
        return SharedDescriptor(start, 128, 8 * width)

    def describe(self, name: str, how: SharedDescriptor) -> None:
        """A descriptor in a register."""
        self.issue.append(f"shr.u32 %r14, %r4, 4; cvt.u64.u32 %q8, %r14; add.s64 {name}, %q8, {how.encode()};")

    def bring(self, rows: list[NDArray[np.uint8]], shape: str, column: int) -> None:
        """A copy of rows of bytes to tensor memory, each CTA its own."""
        how = SharedDescriptor(self.at, 128, 8 * rows[0].shape[1])
        for image, part in zip(self.images, rows, strict=True):
            put(image, part, how.encode())
        self.at += rows[0].size
        self.describe("%q11", how)
        self.issue.append(f"add.u32 %r15, %r1, {column};")
        self.issue.append(f"tcgen05.cp.cta_group::{self.ctas}.{shape} [%r15], %q11;")

    def _copy(self, rows: NDArray[np.uint8], p: TensorProduct) -> None:
        """A in tensor memory: on the lanes of its rows, twice where D is in two parts."""
        if p.a.bits < 8 and not p.kind.startswith("mxf4"):
            raise ValueError(f"{p.a.name} in bytes of its own is only multiplied from shared memory here")
        for number, part in enumerate(np.split(rows, self.ctas)):
            lanes = np.zeros((128, part.shape[1]), np.uint8)
            for r, row in enumerate(part):
                for copy in range(128):
                    place = p.result.coordinates(copy, 0)
                    if place["r"] == r and not place["h"]:
                        lanes[copy] = row
            self.parts = [*(self.parts if number else []), lanes]
        for at in range(0, self.parts[0].shape[1], 32):
            width = min(32, self.parts[0].shape[1] - at)
            self.bring([np.ascontiguousarray(x[:, at : at + width]) for x in self.parts],
                       f"128x{8 * width}b", 300 + at // 4)  # fmt: skip

    def run(self, d: str = "f32", **more: object) -> NDArray[np.generic]:
        """D, (m, n), by one launch under all checks."""
        p, op = self.product, self.product.opcode
        word = replace(p, along_mn=self.along_mn).encode()
        words = "".join((".ws" if op.stationary else "", ".sp" if op.sparse else ""))
        vector = {0: "", 1: ".block_scale", 2: ".block_scale", 4: ".block_scale.scale_vec::4X"}[op.vector]
        a = "[%r16]" if self.in_memory else "%q9"
        meta = "[%r17], " if op.sparse else ""
        scales = "[%r18], [%r19], " if op.vector else ""
        issue = [*self.issue, "add.u32 %r16, %r1, 300; add.u32 %r17, %r1, 400; add.u32 %r18, %r1, 420; "
                 "add.u32 %r19, %r1, 440;",
                 f"tcgen05.mma{words}.cta_group::{op.group}.kind::{op.kind}{vector}{self.words} [%r1], {a}, %q10, "
                 f"{meta}{word:#x}, {scales}0{self.tail};"]  # fmt: skip
        each = p.shape.n // p.parts
        registers = 1 << (each - 1).bit_length()
        kernel = Kernel(np.concatenate(self.images), issue, 512, outputs=registers, group=op.group, stored=each,
                        halves=p.result.extent("h") > 1)  # fmt: skip
        self.kernel = kernel
        assert check_ptx(kernel.text()) == []
        sums = kernel.run().reshape(op.group, 128, registers)[..., :each]
        result = np.zeros((p.shape.m, p.shape.n), np.uint32)
        for cta in range(op.group):
            for lane in range(128):
                place = p.result.coordinates(lane, 0)
                if not place["h"]:
                    columns = slice(place["p"] * each, (place["p"] + 1) * each)
                    result[cta * p.rows + place["r"], columns] = sums[cta, lane]
        return {"f32": result.view(np.float32), "s32": result.view(np.int32),
                "f16": result.astype(np.uint16).view(np.float16)}[d]  # fmt: skip


def of(kind: str, m: int, n: int, a: str, b: str, d: str = "f32", group: int = 1, **more: object) -> TensorProduct:
    """A product without scales, dense."""
    op = Opcode(kind, group, **more)  # pyright: ignore
    k = {"f16": 16, "tf32": 8}.get(kind, 32)
    first, second, result = map(element_type, (a, b, d))
    return TensorProduct.decode(op, TensorProduct(Shape(m, n, k), first, second, result, result, opcode=op).encode())


DENSE = [
    of("f16", 128, 64, "f16", "f16"),
    of("f16", 64, 24, "bf16", "bf16"),
    of("tf32", 128, 40, "tf32", "tf32"),
    of("f8f6f4", 128, 16, "e4m3", "e5m2"),
    of("f8f6f4", 64, 72, "e2m3", "e3m2"),
    of("f8f6f4", 128, 8, "e2m1", "e4m3"),
    of("f16", 256, 32, "f16", "f16", group=2),
    of("f8f6f4", 128, 48, "e5m2", "e2m1", group=2),
    of("f16", 128, 64, "f16", "f16", stationary=True),
    of("f16", 64, 64, "bf16", "bf16", stationary=True),
    of("f8f6f4", 32, 128, "e4m3", "e3m2", stationary=True),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("product", DENSE, ids=lambda p: f"{p.spelling.removeprefix('tcgen05.')} {p.a.name} {p.b.name}")
def test_dense_products(product: TensorProduct) -> None:
    case = Product(product)
    close(case.run(), case.a, case.b)


@pytest.mark.parametrize(("m", "a", "b"), [(128, "s8", "u8"), (64, "u8", "s8")])
def test_integer_products(m: int, a: str, b: str) -> None:
    case = Product(of("i8", m, 48, a, b, "s32"))
    assert np.array_equal(case.run("s32"), case.a @ case.b.T)


def test_a_product_of_halves_rounds_to_halves() -> None:
    case = Product(of("f16", 128, 32, "f16", "f16", "f16"))
    close(case.run("f16"), case.a, case.b, 2.0**-10)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_swizzled_operands(swizzle: int) -> None:
    case = Product(of("f16", 128, 64, "f16", "f16"), swizzle=swizzle)
    close(case.run(), case.a, case.b)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kind", "a", "along_mn"),
    [("f16", "f16", (True, True)), ("f16", "bf16", (False, True)), ("tf32", "tf32", (True, True)),
     ("f8f6f4", "e4m3", (True, False))],
)  # fmt: skip
def test_operands_along_m_and_n(kind: str, a: str, along_mn: tuple[bool, bool]) -> None:
    case = Product(of(kind, 128, 64, a, a), along_mn=along_mn)
    close(case.run(), case.a, case.b)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "product",
    [of("f16", 128, 16, "bf16", "bf16"), of("f16", 64, 32, "f16", "f16"), of("tf32", 128, 24, "tf32", "tf32"),
     of("f8f6f4", 128, 16, "e4m3", "e5m2"), of("f16", 256, 32, "f16", "f16", group=2),
     of("f16", 128, 32, "f16", "f16", group=2), of("f16", 64, 64, "f16", "f16", stationary=True)],
    ids=lambda p: p.spelling.removeprefix("tcgen05."),
)  # fmt: skip
def test_a_in_tensor_memory(product: TensorProduct) -> None:
    case = Product(product, in_memory=True)
    close(case.run(), case.a, case.b)


def scaled(
    kind: str, vector: int, a: str, b: str, scale: str, m: int = 128, n: int = 40, group: int = 1
) -> TensorProduct:
    """A product with scales."""
    op, f32 = Opcode(kind, group, vector=vector), element_type("f32")
    shape = Shape(m, n, 32 if kind == "mxf8f6f4" else 64)
    types = element_type(a), element_type(b), f32, f32
    product = TensorProduct(shape, *types, opcode=op, scale=BlockScale(vector, element_type(scale)))
    return TensorProduct.decode(op, product.encode())


def scale_rows(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Scales (rows, vector) as 32 lanes of words, a column for each 32 rows."""
    rows, vector = codes.shape
    groups = np.full((-(-rows // 32), 32, 4), 0xEE, np.uint8)
    groups[np.arange(rows) // 32, np.arange(rows) % 32, :vector] = codes
    scales = np.full((32, 16), 0xEE, np.uint8)
    lanes = groups.transpose(1, 0, 2).reshape(32, -1)
    scales[:, : lanes.shape[1]] = lanes
    return scales


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "product",
    [scaled("mxf8f6f4", 1, "e4m3", "e2m1", "ue8m0"), scaled("mxf8f6f4", 1, "e3m2", "e5m2", "ue8m0", n=128),
     scaled("mxf4", 2, "e2m1", "e2m1", "ue8m0"), scaled("mxf4nvf4", 4, "e2m1", "e2m1", "ue4m3", n=72),
     scaled("mxf4nvf4", 4, "e2m1", "e2m1", "ue8m0"), scaled("mxf8f6f4", 1, "e5m2", "e4m3", "ue8m0", 256, 64, 2),
     scaled("mxf4nvf4", 4, "e2m1", "e2m1", "ue4m3", 256, 96, 2)],
    ids=lambda p: f"{p.spelling.removeprefix('tcgen05.')} {p.a.name} {p.scale.type.name}",
)  # fmt: skip
def test_scaled_products(product: TensorProduct) -> None:
    assert product.scale is not None
    case, name, vector = Product(product), product.scale.type.name, product.opcode.vector
    operands = []
    for rows, numbers, column in ((product.shape.m, case.a, 420), (product.shape.n, case.b, 440)):
        low, top = (120, 135) if name == "ue8m0" else (1, 0x7F)
        codes = case.random.integers(low, top, (rows, vector)).astype(np.uint8)
        factors = np.vectorize(lambda code: value(name, int(code)))(codes)
        operands.append(numbers * np.repeat(factors, product.shape.k // vector, axis=1))
        parts = np.split(codes, case.ctas) if column == 420 else [codes] * case.ctas
        case.bring([scale_rows(part) for part in parts], "32x128b.warpx4", column)
    close(case.run(), *operands)
    close(case.run(), *operands)


SPARSE = [("f16", "f16", 128, 1, False), ("tf32", "tf32", 128, 1, False), ("f8f6f4", "e4m3", 128, 1, False),
          ("i8", "s8", 128, 1, False), ("f16", "bf16", 256, 2, False), ("f8f6f4", "e5m2", 64, 1, True),
          ("f16", "f16", 32, 1, True)]  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("kind", "a", "m", "group", "stationary"), SPARSE)
def test_sparse_products(kind: str, a: str, m: int, group: int, stationary: bool) -> None:
    d = "s32" if kind == "i8" else "f32"
    op = Opcode(kind, group, True, stationary)
    factor, result = element_type(a), element_type(d)
    k = {"f16": 32, "tf32": 16}.get(kind, 64)
    described = TensorProduct(Shape(m, 64, k), factor, factor, result, result, opcode=op)
    product = TensorProduct.decode(op, described.encode())
    case = Product(product)
    chunk, step = (2, 1) if kind == "tf32" else (4, 2)
    pairs = [(0,), (1,)] if step == 1 else [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    picked = case.random.integers(0, len(pairs), (m, k // chunk))
    dense, bits = np.zeros((m, k)), np.zeros((m, k // chunk), np.uint32)
    for r in range(m):
        for c in range(k // chunk):
            where = pairs[picked[r, c]]
            bits[r, c] = (0b0100, 0b1110)[where[0]] if step == 1 else where[0] | where[1] << 2
            for number, place in enumerate(where):
                dense[r, c * chunk + place] = case.a[r, c * step + number]
    case.bring([metadata(part, kind, m // group) for part in np.split(bits, group)], "128x128b", 400)
    sums = case.run(d)
    if kind == "i8":
        assert np.array_equal(sums, dense @ case.b.T)
    else:
        close(sums, dense, case.b)


def metadata(nibbles: NDArray[np.uint32], kind: str, rows: int) -> NDArray[np.uint8]:
    """Nibbles (rows, chunks) on the lanes that ISA 9.7.16.10.8 has for them, repeated where there are fewer rows."""
    words = np.zeros((128, 4), np.uint32)
    for r, row in enumerate(nibbles):
        for c, nibble in enumerate(row):
            if kind in ("f16", "tf32"):
                lane, bit = r % 8 + 8 * (c // 4) + 16 * (r // 16), 4 * (c % 4) + 16 * (r // 8 % 2)
                words[lane, 0] |= nibble << np.uint32(bit)
            else:
                words[r, c // 8] |= nibble << np.uint32(4 * (c % 8))
    return words.view(np.uint8)


def test_d_is_added_to_scaled_and_masked() -> None:
    case = Product(of("f16", 128, 16, "f16", "f16"))
    case.words, case.tail = "", ", 2"
    first = replace(case.product).encode()
    case.issue.append(f"tcgen05.mma.cta_group::1.kind::f16 [%r1], %q9, %q10, {first:#x}, 0;")
    mask = "{%r20, %r21, %r21, %r21}"
    case.issue.append("mov.b32 %r20, 0x10; mov.b32 %r21, 0;")
    case.issue.append(f"tcgen05.mma.cta_group::1.kind::f16 [%r1], %q9, %q10, {first:#x}, {mask}, 1, 2;")
    kernel = Kernel(case.images[0], case.issue, 512, outputs=16)
    result = kernel.run().view(np.float32)
    exact = case.a @ case.b.T
    exact[np.arange(128) != 4] *= 1.25
    assert np.allclose(result, exact, rtol=1e-4, atol=1e-5)


def test_signs_are_changed() -> None:
    product = replace(of("f8f6f4", 128, 16, "e2m3", "e2m1"), negated=(True, False))
    case = Product(product)
    close(case.run(), -case.a, case.b)


def test_columns_of_b_that_a_mask_leaves_out() -> None:
    case = Product(of("f16", 128, 64, "f16", "f16", stationary=True))
    case.issue.append(f"mov.b64 %q20, {1 << 39 | 2 << 40 | 4 << 48:#x};")
    case.tail = ", %q20"
    numbers = np.where((np.arange(64) % 8 < 5)[:, None], case.b, 0)
    close(case.run(), case.a, numbers)


def test_steps_along_k_within_a_swizzle() -> None:
    """The loop of compiled kernels: D is zeroed by stores, and each step begins 32 bytes further on."""
    random = np.random.default_rng(9)
    tiles, image = 2, random.integers(0, 256, 49152).astype(np.uint8)
    a, b = (random.standard_normal((rows, 64 * tiles)).astype(np.float16) for rows in (128, 64))
    word, issue = of("f16", 128, 64, "f16", "f16").encode(), []
    for tile in range(tiles):
        for matrix_, name, start in ((a, "%q9", tile * 16384), (b, "%q10", 32768 + tile * 8192)):
            how = SharedDescriptor(start, 16, 1024, 128)
            put(image, matrix_[:, 64 * tile :][:, :64], how.encode())
            issue.append(f"shr.u32 %r14, %r4, 4; cvt.u64.u32 %q8, %r14; add.s64 {name}, %q8, {how.encode()};")
        for _ in range(4):
            issue.append(f"tcgen05.mma.cta_group::1.kind::f16 [%r1], %q9, %q10, {word:#x}, 1;")
            issue.append("add.s64 %q9, %q9, 2; add.s64 %q10, %q10, 2;")
    zeros = "{" + ", ".join(["%r290", *["0"] * 63]) + "}"  # ptxas 13.5 takes no literals alone
    before = ["mov.b32 %r290, 0;", f"tcgen05.st.sync.aligned.32x32b.x64.b32 [%r2], {zeros};",
              "tcgen05.wait::st.sync.aligned;",
              "tcgen05.fence::before_thread_sync;", "bar.sync 1;", "tcgen05.fence::after_thread_sync;"]  # fmt: skip
    result = Kernel(image, issue, 64, before=before).run("strict").view(np.float32)
    close(result, a.astype(np.float64), b.astype(np.float64), 2.0**-20)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bug", ["C13", "C14"])
def test_suspected_bugs_of_scales_are_wrong_numbers(bug: str) -> None:
    """https://github.com/tile-ai/tilelang/issues/2644: C13, scales of two steps of K lie side by side, and the
    descriptor of `tcgen05.cp` is that of one; C14, byte-ids begin anew behind four groups, the fifth with the scale of
    the first. All that is read was written, and nothing is said: the numbers are wrong."""
    product = scaled("mxf8f6f4", 1, "e4m3", "e4m3", "ue8m0")
    case, both = Product(product), []
    for numbers, column in ((case.a, 420), (case.b, 440)):
        right, other = (case.random.integers(120, 135, (len(numbers), 1)).astype(np.uint8) for _ in range(2))
        rows, others = scale_rows(right), scale_rows(other)
        mixed = [part[first : first + 8] for first in (0, 8) for part in (rows, others)]
        case.bring([np.concatenate(mixed) if bug == "C13" else others], "32x128b.warpx4", column)
        both.append((numbers * np.exp2(right - 127.0), numbers * np.exp2(other - 127.0)))
    result, (right_a, other_a), (right_b, other_b) = case.run(), *both
    with pytest.raises(AssertionError):
        close(result, right_a, right_b)
    if bug == "C14":
        close(result, other_a, other_b)
    else:
        close(result[:8, :8], right_a[:8], right_b[:8])
