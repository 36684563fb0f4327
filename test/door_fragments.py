"""Kernels of `door_programs.py` that multiply fragments of one warp in `nvgpu`: copied by lanes, or with `ldmatrix`."""

from __future__ import annotations

import numpy as np
from door_matrices import DTYPES, Array, Matrices, constants

SHARED = "#gpu.address_space<workgroup>"
BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "i8": 8, "i4": 4, "i32": 32}

DENSE = {
    "f16": ((16, 8, 8), (16, 8, 16)), "bf16": ((16, 8, 8), (16, 8, 16)), "f32": ((16, 8, 4), (16, 8, 8)),
    "f64": ((8, 8, 4),), "i8": ((8, 8, 16), (16, 8, 16), (16, 8, 32)), "i4": ((8, 8, 32), (16, 8, 32), (16, 8, 64)),
}  # fmt: skip
SPARSE = {"f16": ((16, 8, 16), (16, 8, 32)), "bf16": ((16, 8, 16), (16, 8, 32)), "f32": ((16, 8, 8), (16, 8, 16)),
          "i8": ((16, 8, 32), (16, 8, 64))}  # fmt: skip

LANE = np.arange(32)


def places(rows: int, columns: int, bits: int, role: str) -> tuple[Array, Array]:
    """The row and the column of each element of each lane (PTX ISA 9.7.14.5): of B those of its transpose."""
    group, within = LANE[:, None, None] // 4, LANE[:, None, None] % 4
    each = 2 if role == "c" else max(1, 32 // bits)
    down = 1 if role == "b" else rows // 8
    count = rows * columns // 32 // each
    register, element = np.arange(count)[None, :, None], np.arange(each)[None, None, :]
    row = group + 8 * (register % down) + 0 * element
    return row, within * each + element + register // down * 4 * each


def vector(count: int, each: int, element: str) -> str:
    return f"vector<{count}x{each}x{element}>"


class FragmentKernel(Matrices):
    """D = A B + C by `nvgpu.mma.sync` and `nvgpu.mma.sp.sync`, several times."""

    def build(self) -> str:
        draw = self.draw
        self.parameters: list[str] = []
        sparse = draw.random() < 0.35
        element = draw.choice(tuple(SPARSE if sparse else DENSE))
        m, n, k = draw.choice((SPARSE if sparse else DENSE)[element])
        total = {"f16": draw.choice(("f16", "f32")), "bf16": "f32", "f32": "f32", "f64": "f64"}.get(element, "i32")
        self.note = element, total, (m, n, k), sparse
        self.lines = [*constants(0), "%t = gpu.thread_id x"]
        c, sums = self.own("C", m, n, total)
        for step in range(draw.randint(1, 2)):
            metadata, selector = "", 0
            if sparse:
                a, first, metadata, selector = self.sparse(m, k, element, step)
            else:
                a, first = self.operand(f"A{step}", m, k, element)
            b, second = self.operand(f"B{step}", n, k, element, role="b")
            words = f"mmaShape = [{m}, {n}, {k}]" + (", tf32Enabled" if element == "f32" else "")
            deep = k // 2 if sparse else k
            kinds = [
                self.kind_of(m, deep, element, "a"), self.kind_of(n, k, element, "b"), self.kind_of(m, n, total, "c")
            ]  # fmt: skip
            if sparse:
                words += f", sparsitySelector = {selector} : i32" if selector else ""
                text = f"nvgpu.mma.sp.sync({a}, {b}, {c}) metadata({metadata}) {{{words}}}"
            else:
                text = f"nvgpu.mma.sync({a}, {b}, {c}) {{{words}}}"
            self.lines.append(f"%d{step} = {text} : ({', '.join(kinds)}) -> {kinds[2]}")
            c, sums = f"%d{step}", first @ second.T + sums
        self.store(c, sums, m, n, total)
        return self.kernel(", ".join(self.parameters), self.lines)

    def kind_of(self, rows: int, columns: int, element: str, role: str) -> str:
        _, register, each = places(rows, columns, BITS[element], role)[0].shape
        return vector(register, each, element)

    def memory(self, array: Array, kind: str) -> str:
        name = f"%X{len(self.arrays)}"
        self.parameters.append(f"{name}: memref<{kind}>")
        self.arrays.append(array)
        return name

    def drawn(self, shape: tuple[int, ...], element: str) -> Array:
        return self.data.integers(-8 if element == "i4" else -4, 5, shape)

    def own(self, name: str, rows: int, columns: int, element: str, role: str = "c") -> tuple[str, Array]:
        """A fragment that each lane loads from its own part of memory."""
        values = self.drawn((rows, columns), element)
        return self.lanes_load(name, values, element, role), values

    def lanes_load(self, name: str, values: Array, element: str, role: str) -> str:
        row, column = places(len(values), values.shape[1], BITS[element], role)
        lanes = values[row, column].reshape(32, -1)
        _, register, each = row.shape
        count = register * each
        if element == "i4":
            nibbles = lanes.astype(np.uint8) & 15
            array = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).astype(np.int8)
            stored, loaded = "i8", count // 2
        else:
            array, stored, loaded = lanes.astype(DTYPES[element]), element, count
        memory = self.memory(array, f"32x{loaded}x{stored}")
        flat, kind = f"vector<{loaded}x{stored}>", vector(register, each, element)
        self.lines.append(f"%{name}_l = vector.load {memory}[%t, %c0] : memref<32x{loaded}x{stored}>, {flat}")
        if element == "i4":
            self.lines.append(f"%{name}_b = vector.bitcast %{name}_l : {flat} to vector<{count}xi4>")
            self.lines.append(f"%{name} = vector.shape_cast %{name}_b : vector<{count}xi4> to {kind}")
        else:
            self.lines.append(f"%{name} = vector.shape_cast %{name}_l : {flat} to {kind}")
        return f"%{name}"

    def operand(self, name: str, rows: int, columns: int, element: str, role: str = "a") -> tuple[str, Array]:
        values = self.drawn((rows, columns), element)
        if BITS[element] in (16, 32, 8) and element != "i32" and self.draw.random() < 0.6:
            return self.by_ldmatrix(name, values, element, role), values
        return self.lanes_load(name, values, element, role), values

    def by_ldmatrix(self, name: str, values: Array, element: str, role: str) -> str:
        """Copied to shared memory by `nvgpu.device_async_copy`, and read from there by matrices of 8 x 16 bytes."""
        draw, bits = self.draw, BITS[element]
        turned = bits == 16 and draw.random() < 0.5
        stored = np.ascontiguousarray(values.T if turned else values).astype(DTYPES[element])
        rows, columns = stored.shape
        unit = 128 // bits
        each = draw.choice([n for n in (16, 8, 4) if n * 8 // bits <= columns]) * 8 // bits
        pad = draw.choice((0, 0, unit))
        source_name = self.memory(stored, f"{rows}x{columns}x{element}")
        shared, source = f"memref<{rows}x{columns + pad}x{element}, 3>", f"memref<{rows}x{columns}x{element}>"
        self.globals.append(f'memref.global "private" @{name}_s : {shared}')
        self.lines.append(f"%{name}_s = memref.get_global @{name}_s : {shared}")
        chunks = rows * columns // each
        across = columns // each
        lines = []
        partial = draw.random() < 0.3
        for first in range(0, chunks, 32):
            at = f"%{name}_{first}"
            lines += [
                *constants(first, across, each, chunks),
                f"{at}_n = arith.addi %t, %c{first} : index",
                f"{at}_r = arith.divui {at}_n, %c{across} : index",
                f"{at}_q = arith.remui {at}_n, %c{across} : index",
                f"{at}_c = arith.muli {at}_q, %c{each} : index",
                f"{at}_i = arith.cmpi ult, {at}_n, %c{chunks} : index",
            ]
            cached = " {bypassL1}" if each * bits == 128 and draw.random() < 0.5 else ""
            count = f", %c{each}" if partial else ""
            lines += [
                f"scf.if {at}_i {{",
                f"  {at}_x = nvgpu.device_async_copy {source_name}[{at}_r, {at}_c], %{name}_s[{at}_r, "
                f"{at}_c], {each}{count}{cached} : {source} to {shared}",
                "}",
            ]
        self.lines += [
            *lines, f"%{name}_g = nvgpu.device_async_create_group",
            f"nvgpu.device_async_wait %{name}_g" + draw.choice(("", " {numGroups = 0 : i32}")), "gpu.barrier",
        ]  # fmt: skip
        # The matrix that each lane names a row of: down the rows of A first, along K of B.
        tall, wide = values.shape[0] // 8, values.shape[1] // unit
        count = tall * wide
        number, line = LANE // 8 % count, LANE % 8
        down, along = (number % tall, number // tall) if role == "a" else (0 * number, number)
        row, column = (along * 8 + line, down * 8) if turned else (down * 8 + line, along * unit)
        places_ = [self.memory(array.astype(np.int32), "32xi32") for array in (row, column)]
        for letter, place in zip("rc", places_, strict=True):
            self.lines += [
                f"%{name}_{letter}i = memref.load {place}[%t] : memref<32xi32>",
                f"%{name}_{letter} = arith.index_cast %{name}_{letter}i : i32 to index",
            ]
        kind = self.kind_of(len(values), values.shape[1], element, role)
        self.lines.append(
            f"%{name} = nvgpu.ldmatrix %{name}_s[%{name}_r, %{name}_c] {{transpose = {str(turned).lower()}, numTiles = "
            f"{count} : i32}} : {shared} -> {kind}"
        )
        return f"%{name}"

    def sparse(self, m: int, k: int, element: str, step: int) -> tuple[str, Array, str, int]:
        """A with half of its elements, and which: two of each four, of f32 one of each two."""
        draw, bits = self.draw, BITS[element]
        values, deep = self.drawn((m, k // 2), element), k // 2
        whole = np.zeros((m, k), np.int64)
        if bits == 32:
            where = self.data.integers(0, 2, (m, deep))
            whole[np.arange(m)[:, None], 2 * np.arange(deep) + where] = values
            codes = np.where(where, 0b1110, 0b0100)
        else:
            pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])[self.data.integers(0, 6, (m, k // 4))]
            for side in (0, 1):
                whole[np.arange(m)[:, None], 4 * np.arange(k // 4) + pairs[:, :, side]] = values[:, side::2]
            codes = pairs[:, :, 0] | pairs[:, :, 1] << 2
        chunks = codes.shape[1]
        one = (bits, k) in ((16, 16), (32, 8))
        selector = draw.randrange(1 if (bits, k) == (8, 64) else 2)  # upstream takes no others
        words = self.data.integers(0, 2**32, 32, np.uint64)
        words[:] = 0x44444444 if bits != 8 or k != 64 else 0
        for row in range(m):
            for chunk in range(chunks):
                g, h = row % 8, row // 8
                if one:
                    lane, nibble = 4 * g + selector, 4 * h + chunk
                elif bits == 8 and k == 32:
                    lane, nibble = 4 * g + 2 * selector + h, chunk
                elif bits == 8:
                    lane, nibble = 4 * g + 2 * (chunk // 8) + h, chunk % 8
                else:
                    lane, nibble = 4 * g + 2 * selector + chunk // 4, 4 * h + chunk % 4
                words[lane] = int(words[lane]) & ~(15 << 4 * nibble) | int(codes[row, chunk]) << 4 * nibble
        name = f"%E{step}"
        memory = self.memory(words.astype(np.uint32).view(np.int16).reshape(32, 2), "32x2xi16")
        self.lines.append(f"{name} = vector.load {memory}[%t, %c0] : memref<32x2xi16>, vector<2xi16>")
        return self.lanes_load(f"A{step}", values, element, "a"), whole, name, selector

    def store(self, c: str, sums: Array, m: int, n: int, total: str) -> None:
        row, column = places(m, n, BITS[total], "c")
        lanes = sums[row, column].reshape(32, -1)
        count = lanes.shape[1]
        self.expected[len(self.arrays)] = lanes.astype(np.float64)
        memory = self.memory(np.full(lanes.shape, 77, DTYPES[total]), f"32x{count}x{total}")
        self.lines += [
            f"%flat = vector.shape_cast {c} : {self.kind_of(m, n, total, 'c')} to vector<{count}x{total}>",
            f"vector.store %flat, {memory}[%t, %c0] : memref<32x{count}x{total}>, vector<{count}x{total}>",
        ]
