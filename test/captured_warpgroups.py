"""Operand words for `wgmma.mma_async`, drawn as in `captured`, and kernels that execute one instruction on them.

A case is one instruction with all that it may be told, drawn at random: where A is, how the matrices lie in shared
memory, signs, whether D is added. Kinds of operands cycle within a case, CTA by CTA.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from captured import KINDS, Codes, Random, Words, codes
from numpy.typing import NDArray

from warploom.dialect.isa import wgmma
from warploom.dialect.isa.row import VECTOR, Target
from warploom.dialect.isa.wgmma import M, MatrixDescriptor, Wgmma

Bytes: TypeAlias = NDArray[np.uint8]

THREADS = 128
ALIGNED = 1024
SWIZZLES = (0, 32, 64, 128)


@dataclass(frozen=True)
class WarpgroupCase:
    """One instruction. `trans` has the roles that lie along M or N; `negated` those whose sign changes.

    `ahead` is how many times 32 bytes of K the matrices begin inside the span of a swizzle.
    """

    row: Wgmma
    a_shared: bool
    swizzle: int = 128
    trans: str = ""
    negated: str = ""
    scale_d: bool = True
    selector: int = 0
    ahead: int = 0

    @property
    def name(self) -> str:
        words = (
            "A shared" if self.a_shared else "A in registers", f"swizzle {self.swizzle}", f"trans {self.trans}",
            f"negated {self.negated}", f"scale_d {int(self.scale_d)}", f"f {self.selector}", f"ahead {self.ahead}",
        )  # fmt: skip
        return f"{self.row.spelling} ({', '.join(words)})"


@dataclass(frozen=True)
class OffsetCase(WarpgroupCase):
    """A product of A in registers whose B begins in another row of the swizzle's pattern than the first."""

    pattern_row: int = 0
    base_offset: int = 0

    @property
    def name(self) -> str:
        return f"{super().name} row {self.pattern_row} of the pattern, base offset {self.base_offset}"


def offset_cases(target: Target) -> Iterator[OffsetCase]:
    """Every row of each pattern, with the base offset that says so and with none."""
    row = next(row for row in wgmma.rows() if row.a.name == "bf16" and row.shape.n == 8 and not row.granularity)
    for swizzle in SWIZZLES[1:] if row.runs_on(target) else ():
        for at in range(swizzle // 16):
            for base in dict.fromkeys((0, at)):
                yield OffsetCase(row, False, swizzle, pattern_row=at, base_offset=base)


def _drawn(row: Wgmma, a_shared: bool) -> WarpgroupCase:
    random = Random(f"{row.spelling} {a_shared}")
    turns = [int(n) for n in random.bits((6,), 16)]
    roles = row.transposable(a_shared=a_shared)
    trans = [r for r in ("", "a", "b", "ab") if set(r) <= set(roles)]
    signs = ("", "a", "b", "ab") if row.a.is_float else ("",)
    # 64 bytes of K, which a sparse product takes of B, are more than the span of the smallest swizzle
    swizzles = _choices(row)["swizzle"]
    swizzle = swizzles[turns[0] % len(swizzles)]
    chosen = trans[turns[1] % len(trans)]
    k_bytes = 64 if row.granularity else 32
    rows = 1 if chosen or not swizzle else max(1, swizzle // k_bytes)
    return WarpgroupCase(
        row, a_shared, swizzle, chosen, signs[turns[2] % len(signs)], turns[3] % 5 != 0,
        row.selectors[turns[4] % len(row.selectors)] if row.selectors else 0, turns[5] % rows * (k_bytes // 32),
    )  # fmt: skip


def cases(target: Target) -> Iterator[WarpgroupCase]:
    """Every type, dense and sparse, with A in shared memory and in registers, at four sizes."""
    kept = [row for row in wgmma.rows() if row.runs_on(target) and row.shape.n in _sizes(row)]
    yield from (_drawn(row, a_shared) for row, a_shared in product(kept, (True, False)))


def further_cases(target: Target) -> Iterator[WarpgroupCase]:
    """What the draw of `cases` left out: of each type, dense and sparse, every swizzle, transposition, negation and
    scale-d that none of its cases has, at eight columns with A in shared memory."""
    drawn: dict[tuple[Any, ...], list[WarpgroupCase]] = {}
    for case in cases(target):
        drawn.setdefault((case.row.a, case.row.b, case.row.d, case.row.granularity), []).append(case)
    for operands in drawn.values():
        plain = WarpgroupCase(next(case.row for case in operands if case.row.shape.n == 8), a_shared=True)
        for field, values in _choices(plain.row).items():
            have = {getattr(case, field) for case in operands}
            yield from (replace(plain, **{field: value}) for value in values if value not in have)


def _choices(row: Wgmma) -> dict[str, tuple[Any, ...]]:
    """What each part of a case can be."""
    some = ("", "a", "b", "ab")
    return {
        "swizzle": tuple(s for s in SWIZZLES if not (row.granularity and s == 32)),
        "trans": some if row.transposable(a_shared=True) else ("",),
        "negated": some if row.a.is_float else ("",),
        "scale_d": (True, False),
    }


def _sizes(row: Wgmma) -> tuple[int, ...]:
    return (8, 40, 96, 256) if row.a.is_float else (8, 32, 128, 256)


# Matrices


def matrices(case: WarpgroupCase, random: Random, count: int) -> dict[str, Codes]:
    """Codes of A (stored elements), B (n x k) and C of `count` warpgroups."""
    row = case.row
    shapes = {"a": (M, row.stored_k), "b": (row.shape.n, row.shape.k), "c": (M, row.shape.n)}
    operands = {
        role: np.stack([codes(random, row.element(role), shape, KINDS[i % len(KINDS)]) for i in range(count)])
        for role, shape in shapes.items()
    }
    for i in range(KINDS.index("cancelling"), count, len(KINDS)):
        if row.a.is_float and not row.granularity:
            operands["a"][i][:, 1::2] = operands["a"][i][:, ::2] ^ np.uint64(1 << (row.a.bits - 1))
            operands["b"][i][:, 1::2] = operands["b"][i][:, ::2]
            operands["b"][i][:, 1::4] ^= np.uint64(1 << (row.b.bits - 1 - row.b.exponent - row.b.mantissa))
    return operands


def packed(elements: Codes, bits: int) -> Words:
    """Codes as 32-bit words, along the last axis."""
    if bits == 32:
        return elements.astype(np.uint32)
    count = 32 // bits
    shifts = np.arange(count, dtype=np.uint64) * np.uint64(bits)
    grouped = elements.reshape(*elements.shape[:-1], -1, count)
    return np.bitwise_or.reduce(grouped << shifts, axis=-1).astype(np.uint32)


def registers(case: WarpgroupCase, role: str, matrix: Codes) -> Words:
    """A or C as registers hold them: (count, words, threads)."""
    layout = case.row.layout("a" if role == "a" else "d")
    rows, columns = np.moveaxis(layout.positions(M, matrix.shape[2]), -1, 0)
    return packed(matrix[:, rows, columns], case.row.element(role).bits).swapaxes(1, 2)


def descriptor(case: WarpgroupCase, role: str) -> MatrixDescriptor:
    """How A or B lies in its part of shared memory, without gaps; the part begins at address 0."""
    row = case.row
    k_bytes = (row.stored_k if role == "a" else row.shape.k) * row.element(role).bits // 8
    along_mn, span = role in case.trans, case.swizzle or 16
    if not along_mn:
        if not case.swizzle:
            return MatrixDescriptor(0, 128, 8 * k_bytes)
        if isinstance(case, OffsetCase):
            return MatrixDescriptor(128 * case.pattern_row, 16, 8 * span, case.swizzle, case.base_offset)
        return MatrixDescriptor(32 * case.ahead, 16, 8 * span, case.swizzle)
    steps = row.shape.k // 8 if role == "b" else row.stored_k // 8
    if not case.swizzle:
        return MatrixDescriptor(0, 128, 128 * steps)
    return MatrixDescriptor(0, 8 * span * steps, 8 * span, case.swizzle)


def in_shared(case: WarpgroupCase, role: str, matrix: Codes) -> Bytes:
    """A or B (count, mn, k) as bytes of shared memory, random where nothing of it lies."""
    bits = case.row.element(role).bits
    matrix, bits = (packed(matrix, 1).astype(np.uint64), 32) if bits == 1 else (matrix, bits)
    size, how = bits // 8, descriptor(case, role)
    mn, k = np.arange(matrix.shape[1])[:, None], np.arange(matrix.shape[2])[None]
    offsets = how.offset(mn, k, size, along_mn=role in case.trans)
    # as a tensor copy writes it, whatever the base offset says
    places: NDArray[Any] = replace(how, base_offset=0).swizzled(offsets + how.address) // size
    length = -(-(int(places.max()) + 1) * size // ALIGNED) * ALIGNED
    words = Random(f"{case.name} {role}").bits((len(matrix), length // size), bits).astype(f"u{size}")
    words[:, places] = matrix
    return words.view(np.uint8)


def metadata(case: WarpgroupCase, random: Random, count: int) -> Words:
    """One word of legal nibbles for each thread: (count, 1, threads)."""
    if not case.row.codes:
        return np.zeros((count, 0, THREADS), np.uint32)
    legal = np.array([c for c in case.row.codes if c & 3 < c >> 2 or case.row.a.bits == 32], np.uint64)
    nibbles = legal[random.below((count, 8, THREADS), len(legal)).astype(np.intp)]
    shifts = (np.arange(8, dtype=np.uint64) * np.uint64(4))[:, None]
    return np.bitwise_or.reduce(nibbles << shifts, axis=1).astype(np.uint32)[:, None]


def _parts(case: WarpgroupCase) -> str:
    """What lies in shared memory."""
    return "ab" if case.a_shared else "b"


def inputs(case: WarpgroupCase, count: int) -> Words:
    """All input words of `count` warpgroups: shared memory, then registers, each 128 words: (count, words)."""
    random = Random(case.name)
    drawn = matrices(case, random, count)
    shared = [in_shared(case, role, drawn[role]).view(np.uint32) for role in _parts(case)]
    of_a = [] if case.a_shared else [registers(case, "a", drawn["a"])]
    of_a += [registers(case, "c", drawn["c"]), metadata(case, random, count)]
    return np.concatenate([*shared, *(h.reshape(count, -1) for h in of_a)], axis=1)


def kept(case: WarpgroupCase, answers: Words) -> NDArray[Any]:
    """What a recording keeps of answers: the words of eight columns, of more their digests, one each warpgroup."""
    if case.row.shape.n == 8:
        return answers
    return np.stack([np.frombuffer(sha256(each.tobytes()).digest(), np.uint8) for each in answers])


def output_words(case: WarpgroupCase) -> int:
    """32-bit words of a warpgroup's answer."""
    return case.row.registers("d") * THREADS


# Kernels


def kernel(case: WarpgroupCase, name: str) -> str:
    """A kernel of one warpgroup per CTA that reads its input words, executes the instruction and writes its D."""
    row = case.row
    sizes = {role: in_shared(case, role, _nothing(case, role)).shape[1] for role in _parts(case)}
    image = sum(sizes.values())
    used = image // 4
    declared = [".reg .b64 %in, %out, %at, %base, %a_desc, %b_desc;", ".reg .b32 %t, %cta, %x, %to, %e;",
                ".reg .pred %p, %more;", f".shared .align {ALIGNED} .b8 image[{image}];"]  # fmt: skip
    body: list[str] = []
    start = 0
    for role, size in sizes.items():
        body.append(f"add.s64 %{role}_desc, %base, {_word(case, role, start)};")
        start += size
    operands: list[str] = []
    for operand in row.operands_with(a_shared=case.a_shared):
        if operand.kind == VECTOR:
            names = [f"%{operand.name}{i}" for i in range(operand.count)]
            declared.append(f".reg .{'f32' if operand.type == 'f32' else 'b32'} {', '.join(names)};")
            operands.append("{" + ", ".join(names) + "}")
        else:
            operands.append(_operand(case, operand.name))
    names = [] if case.a_shared else [f"%a{i}" for i in range(row.registers("a"))]
    names += [f"%d{i}" for i in range(row.registers("d"))] + (["%e"] if row.metadata else [])
    for i, register in enumerate(names):
        body.append(f"ld.global.b32 {register}, [%in+{4 * (used + i * THREADS)}];")
    used += len(names) * THREADS
    words = row.registers("d") * THREADS
    begin = [
        "ld.param.u64 %in, [words];", "ld.param.u64 %out, [answers];", "mov.u32 %t, %tid.x;", "mov.u32 %cta, %ctaid.x;",
        f"mad.lo.u32 %x, %cta, {used}, %t;", "mul.wide.u32 %at, %x, 4;", "add.s64 %in, %in, %at;",
        f"mad.lo.u32 %x, %cta, {words}, %t;", "mul.wide.u32 %at, %x, 4;", "add.s64 %out, %out, %at;",
        "mov.u32 %to, image;", "shl.b32 %x, %t, 2;", "add.u32 %to, %to, %x;",
    ]  # fmt: skip
    for i in range(0, image, 4 * THREADS):
        begin += [f"ld.global.b32 %x, [%in+{i}];", f"st.shared.b32 [%to+{i}], %x;"]
    begin += ["fence.proxy.async;", "bar.sync 0;", "mov.u32 %x, image;", "shr.u32 %x, %x, 4;", "cvt.u64.u32 %base, %x;",
              f"setp.{'lt' if case.scale_d else 'ge'}.u32 %p, %t, {THREADS};"]  # fmt: skip
    product = [
        "wgmma.fence.sync.aligned;", f"{row.spelling} {', '.join(operands)};",
        "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;",
    ]  # fmt: skip
    stores = [f"st.global.b32 [%out+{4 * i * THREADS}], %d{i};" for i in range(row.registers("d"))]
    head = f".visible .entry {name}(.param .u64 words, .param .u64 answers)"
    return "\n".join([head, "{", *declared, *begin, *body, *product, *stores, "ret;", "}"])


def _nothing(case: WarpgroupCase, role: str) -> Codes:
    row = case.row
    shape = (M, row.stored_k) if role == "a" else (row.shape.n, row.shape.k)
    return np.zeros((1, *shape), np.uint64)


def _word(case: WarpgroupCase, role: str, start: int) -> int:
    """The descriptor of a matrix whose part begins `start` bytes into the image, as a signed number."""
    word = descriptor(case, role).encode() + start // 16
    return word - (word >> 63 << 64)


def _operand(case: WarpgroupCase, name: str) -> str:
    kind, _, role = name.partition("_")
    if name in ("a", "b"):
        return f"%{name}_desc"
    if name == "scale_d":
        return "%p"
    if kind == "scale":
        return "-1" if role in case.negated else "1"
    if kind == "trans":
        return str(int(role in case.trans))
    return "%e" if name == "e" else str(case.selector)
