"""Kernels of `door_programs.py` whose threads wait for each other at mbarriers of `nvgpu`, phase after phase."""

from __future__ import annotations

import numpy as np
from door_matrices import Matrices, constants

SHARED = "#gpu.address_space<workgroup>"


class BarrierKernel(Matrices):
    """In each phase every thread writes a number to shared memory, arrives, waits, and adds up what another wrote.
    There is room for two phases, so that threads of the next do not wait for readers."""

    targets = ("sm_90a",)

    def build(self) -> str:
        draw = self.draw
        self.threads = draw.choice((32, 64, 96, 128, 160))
        count, phases = draw.randint(1, 3), draw.randint(1, 7)
        more = draw.choice((0, 0, 1, 3))
        by_token = draw.random() < 0.5
        unrolled = draw.random() < 0.4
        self.targets = ("sm_80", "sm_90a") if by_token else self.targets  # of which sm_80 has no try_wait
        x = self.data.integers(-(2**31), 2**31, (phases, self.threads)).astype(np.int32)
        where = np.array([self.data.permutation(self.threads) for _ in range(phases)], np.int32)
        y = np.full(self.threads, 77, np.int32)
        self.arrays = [x, where, y]
        taken = np.take_along_axis(x, where, 1).astype(np.int64)
        self.expected = {2: taken.sum(0).astype(np.int32).astype(np.float64)}
        shape, room = f"{phases}x{self.threads}xi32", f"memref<2x{self.threads}xi32, 3>"
        self.globals = [f'memref.global "private" @room : {room}']
        lines = [
            *constants(0, 1, 2, count, phases, more, self.threads * (1 + more), 1000000),
            "%t = gpu.thread_id x",
            "%yes = arith.constant true",
            "%none = arith.constant 0 : i32",
            f"%room = memref.get_global @room : {room}",
            "%first = arith.cmpi eq, %t, %c0 : index",
            "%bars = nvgpu.mbarrier.create -> !bars",
            *constants(*range(count)),
        ]
        for number in range(count):
            lines.append(
                f"nvgpu.mbarrier.init %bars[%c{number}], %c{self.threads * (1 + more)}, predicate = %first : !bars"
            )
        lines.append("gpu.barrier")
        if unrolled:
            total = "%none"
            for phase in range(phases):
                lines += [
                    *constants(phase, phase % count, phase % 2),
                    f"%odd{phase} = arith.constant {str(bool(phase // count % 2)).lower()}",
                ]
                names = f"%c{phase}", f"%c{phase % count}", f"%c{phase % 2}", f"%odd{phase}"
                lines += self.phase(str(phase), *names, total, shape, room, more, by_token=by_token)
                total = f"%s{phase}"
        else:
            body = [
                f"%b = arith.remui %p, %c{count} : index",
                "%h = arith.andi %p, %c1 : index",
                f"%q = arith.divui %p, %c{count} : index",
                "%r = arith.andi %q, %c1 : index",
                "%odd = arith.cmpi eq, %r, %c1 : index",
                *self.phase("", "%p", "%b", "%h", "%odd", "%sum", shape, room, more, by_token=by_token),
                "scf.yield %s : i32",
            ]
            head = f"%total = scf.for %p = %c0 to %c{phases} step %c1 iter_args(%sum = %none) -> (i32) {{"
            lines += [head, *(f"  {line}" for line in body), "}"]
            total = "%total"
        lines.append(f"memref.store {total}, %Y[%t] : memref<{self.threads}xi32>")
        parameters = f"%X: memref<{shape}>, %W: memref<{shape}>, %Y: memref<{self.threads}xi32>"
        return (
            f"!bars = !nvgpu.mbarrier.group<memorySpace = {SHARED}, num_barriers = {count}>\n"
            f"!token = !nvgpu.mbarrier.token\n{self.kernel(parameters, lines)}"
        )

    def phase(
        self, n: str, phase: str, barrier: str, half: str, odd: str, total: str, shape: str, room: str, more: int, *,
        by_token: bool,
    ) -> list[str]:  # fmt: skip
        lines = [
            f"%x{n} = memref.load %X[{phase}, %t] : memref<{shape}>",
            f"memref.store %x{n}, %room[{half}, %t] : {room}",
        ]
        if more:
            lines.append(f"%more{n} = nvgpu.mbarrier.arrive.nocomplete %bars[{barrier}], %c{more} : !bars -> !token")
        lines.append(f"%token{n} = nvgpu.mbarrier.arrive %bars[{barrier}] : !bars -> !token")
        if by_token:
            lines += [
                "scf.while : () -> () {",
                f"  %done{n} = nvgpu.mbarrier.test.wait %bars[{barrier}], %token{n} : !bars, !token",
                f"  %again{n} = arith.xori %done{n}, %yes : i1",
                f"  scf.condition(%again{n})",
                "} do {",
                "  scf.yield",
                "}",
            ]
        else:
            lines.append(f"nvgpu.mbarrier.try_wait.parity %bars[{barrier}], {odd}, %c1000000 : !bars")
        return [
            *lines,
            f"%w{n} = memref.load %W[{phase}, %t] : memref<{shape}>",
            f"%at{n} = arith.index_cast %w{n} : i32 to index",
            f"%v{n} = memref.load %room[{half}, %at{n}] : {room}",
            f"%s{n} = arith.addi {total}, %v{n} : i32",
        ]
