"""Kernels of `door_programs.py` that copy tensors and multiply as warpgroups, in `nvgpu`, and their products."""

from __future__ import annotations

import random

import numpy as np
from door_matrices import DTYPES, Matrices, constants

LINES = {128: "swizzle_128b", 64: "swizzle_64b", 32: "swizzle_32b"}
SHARED = "#gpu.address_space<workgroup>"


class Side:
    """An operand of the products: `across` rows of A, or columns of B, in lines of `line` bytes along K, or across."""

    def __init__(self, name: str, across: int, deep: int, element: str, line: int, *, major: bool) -> None:
        self.name, self.major, size = name, major, np.dtype(DTYPES[element]).itemsize
        self.element, self.along = element, line // size
        self.rows, self.boxes = (deep, -(-across // self.along)) if major else (across, deep // self.along)
        self.bytes = self.rows * line * self.boxes
        self.deep, self.across = deep, across
        self.kind = f"memref<{self.rows}x{self.along}x{element}, {SHARED}>"
        shape = (across, deep) if name == "A" else (deep, across)
        self.whole = f"memref<{shape[0]}x{shape[1]}x{element}, {SHARED}>"
        self.map = (
            f"!nvgpu.tensormap.descriptor<tensor = memref<{self.rows}x{self.along}x{element}, 3>, swizzle = "
            f"{LINES[line]}, l2promo = none, oob = zero, interleave = none>"
        )

    def copies(self, stage: int, base: int, steps: int) -> list[str]:
        """The boxes of one stage."""
        lines = []
        for box in range(self.boxes):
            at = box * self.along, stage * self.deep
            if not self.major:
                at = (stage * self.boxes + box) * self.along, 0
            view = f"%{self.name}{stage}_{box}"
            lines += [
                *constants(*at, base + box * self.rows * self.bytes // self.rows // self.boxes),
                f"{view} = memref.view %dyn[%c{base + box * (self.bytes // self.boxes)}][] : "
                f"memref<?xi8, {SHARED}> to {self.kind}",
                f"nvgpu.tma.async.load %m{self.name}[%c{at[0]}, %c{at[1]}], %bars[%c{stage}] to {view}, "
                f"predicate = %first : {self.map}, !bars -> {self.kind}",
            ]
        return lines


class WarpgroupKernel(Matrices):
    """D = A B of a warpgroup, in stages along K."""

    targets, threads = ("sm_90a",), 128

    def build(self) -> str:
        draw: random.Random = self.draw
        element = draw.choice(("f16", "f16", "bf16", "f32", *(("f8E4M3FN", "f8E5M2") if draw.random() < 0.3 else ())))
        size = np.dtype(DTYPES[element]).itemsize
        line = [draw.choice((128, 128, 64, 32)) for _ in "ab"]
        turned = [size == 2 and draw.random() < 0.4 for _ in "ab"]
        deep = max(line) // size * draw.choice((1, 1, 1, 2))
        rows, columns = draw.choice((64, 128, 192)), 8 * draw.randint(1, 32)
        stages = draw.randint(1, 3)
        sides = [
            Side("A", rows, deep, element, line[0], major=turned[0]),
            Side("B", columns, deep, element, line[1], major=turned[1]),
        ]
        total = -(-sum(each.bytes for each in sides) // 1024) * 1024
        while stages * (total + 1024) > 200_000:
            stages -= 1
        if not stages:
            return self.build()
        depth = stages * deep
        self.note = (element, line, turned, rows, columns, deep, stages)
        a = self.small((rows, depth), element)
        b = self.small((depth, columns), element)
        self.expected = {2: a.astype(np.float64) @ b.astype(np.float64)}
        self.arrays = [np.ascontiguousarray(a.T if turned[0] else a), np.ascontiguousarray(b if turned[1] else b.T)]
        self.arrays.append(np.full((rows, columns), np.nan, np.float32))
        self.maps = {i: ((side.rows, side.along), line[i]) for i, side in enumerate(sides)}
        acc = f"!nvgpu.warpgroup.accumulator<fragmented = vector<{rows}x{columns}xf32>>"
        lines = [
            *constants(0, 1, *range(stages), sum(each.bytes for each in sides), 10000000),
            f"%dyn = gpu.dynamic_shared_memory : memref<?xi8, {SHARED}>",
            "%t = gpu.thread_id x",
            "%first = arith.cmpi eq, %t, %c0 : index",
            "%false = arith.constant false",
            "%bars = nvgpu.mbarrier.create -> !bars",
            *(f"nvgpu.mbarrier.init %bars[%c{s}], %c1, predicate = %first : !bars" for s in range(stages)),
            "gpu.barrier",
        ]
        place = 0
        described = list[list[str]]()
        for stage in range(stages):
            lines.append(
                f"nvgpu.mbarrier.arrive.expect_tx %bars[%c{stage}], %c{sum(e.bytes for e in sides)}, "
                "predicate = %first : !bars"
            )
            each = []
            for side in sides:
                lines += side.copies(stage, place, stages)
                each += [
                    *constants(place),
                    f"%{side.name}{stage} = memref.view %dyn[%c{place}][] : memref<?xi8, {SHARED}> to {side.whole}",
                    f"%d{side.name}{stage} = nvgpu.warpgroup.generate.descriptor %{side.name}{stage}, %m{side.name} : "
                    f"{side.whole}, {side.map} -> !nvgpu.warpgroup.descriptor<tensor = {side.whole}>",
                ]
                place += -(-side.bytes // 1024) * 1024
            described.append(each)
        self.shared = place
        lines.append(f"%s0 = nvgpu.warpgroup.mma.init.accumulator -> {acc}")
        for stage in range(stages):
            words = [f"transpose{side.name}" for side in sides if side.major]
            if stage == stages - 1:
                words.append("waitGroup = 0 : i64")
            elif draw.random() < 0.3:
                words.append(f"waitGroup = {draw.randint(0, 1)} : i64")
            kinds = ", ".join(f"!nvgpu.warpgroup.descriptor<tensor = {side.whole}>" for side in sides)
            lines += [
                *described[stage],
                f"nvgpu.mbarrier.try_wait.parity %bars[%c{stage}], %false, %c10000000 : !bars",
                f"%s{stage + 1} = nvgpu.warpgroup.mma %dA{stage}, %dB{stage}, %s{stage} {{{', '.join(words)}}} : "
                f"{kinds}, {acc} -> {acc}",
            ]
        if columns <= 256 and rows <= 256 and rows * columns * 4 <= self.shared and draw.random() < 0.4:
            lines += self.stored_by_copy(rows, columns, acc, stages)
        else:
            lines.append(f"nvgpu.warpgroup.mma.store %s{stages}, %D : {acc} to memref<{rows}x{columns}xf32>")
        parameters = f"%mA: {sides[0].map}, %mB: {sides[1].map}, %D: {self.result_type(rows, columns)}"
        alias = f"!bars = !nvgpu.mbarrier.group<memorySpace = {SHARED}, num_barriers = {stages}>\n"
        return alias + self.kernel(parameters, lines)

    def result_type(self, rows: int, columns: int) -> str:
        if 2 not in self.maps:
            return f"memref<{rows}x{columns}xf32>"
        return (
            f"!nvgpu.tensormap.descriptor<tensor = memref<{rows}x{columns}xf32, 3>, swizzle = none, l2promo = none, "
            "oob = zero, interleave = none>"
        )

    def stored_by_copy(self, rows: int, columns: int, acc: str, stages: int) -> list[str]:
        """Sums that go to shared memory, whose first bytes have been read, and from there by a tensor copy."""
        self.maps[2] = (rows, columns), 0
        kind, map_ = f"memref<{rows}x{columns}xf32, {SHARED}>", self.result_type(rows, columns)
        return [
            "gpu.barrier",
            f"%out = memref.view %dyn[%c0][] : memref<?xi8, {SHARED}> to {kind}",
            f"nvgpu.warpgroup.mma.store %s{stages}, %out : {acc} to {kind}",
            "nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}",
            "gpu.barrier",
            f"nvgpu.tma.async.store %out to %D[%c0, %c0], predicate = %first : {kind} -> {map_}",
            "nvvm.cp.async.bulk.commit.group",
            "nvvm.cp.async.bulk.wait_group 0",
        ]
