"""What an observer of a launch is told."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from interpreted import Array, program

from warploom.runtime.interp.machine.events import Look, MemoryAccess, Selection
from warploom.runtime.interp.machine.kernel import Observer
from warploom.runtime.interp.machine.memory import Buffer
from warploom.runtime.interp.watch.findings import Observers

BODY = """.shared .align 16 .b8 tile[1024]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4; mov.u32 %r3, tile;
add.u32 %r3, %r3, %r2; ld.param.u64 %rd1, [p]; mul.wide.u32 %rd2, %r2, 1; add.u64 %rd1, %rd1, %rd2;
cp.async.cg.shared.global [%r3], [%rd1], 16; cp.async.commit_group; cp.async.wait_group 0; bar.sync 2;
setp.lt.u32 %p1, %r1, 8; @%p1 ld.shared.v2.u32 {%r4, %r5}, [%r3+8]; bar.warp.sync -1;"""


class Recorder(Observer):
    """Writes down what it is told, with the opcode of the instruction."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def begun(self) -> None:
        self.events.append(("begin", self.state.geometry.ctas))

    def _opcode(self, pc: int) -> str:
        return self.kernel.code[pc].source.opcode.partition(".")[0]

    def _counted(self, what: str, pc: int) -> Look:
        return lambda sel: self.events.append((what, self._opcode(pc), sel.count))

    def watch(self, pc: int) -> Look | None:
        return self._counted("watch", pc) if self._opcode(pc) == "ld" else None

    def issue(self, pc: int) -> Look | None:
        return self._counted("issue", pc) if self._opcode(pc) == "ld" else None

    def access(self, access: MemoryAccess) -> None:
        if access.buffer is self.state.memory.shared.buffer:
            own = access.start - self.state.memory.shared.base[access.threads]
            self.events.append((access.kind, access.width, own.tolist(), access.threads.tolist()))

    def come(self, pc: int, number: int, expected: int, threads: Array) -> None:
        self.events.append(("come", number, expected, int(threads.sum())))

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        self.events.append(("join", number, int(arrived.sum()), int(waiting.sum())))

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        self.events.append(("meet", self._opcode(pc), threads.count))

    def land(self, buffer: Buffer, start: Array, width: int, threads: Array) -> None:
        self.events.append(("land", buffer.name, width, start.size, threads.tolist()))

    def end(self) -> None:
        self.events.append(("end",))


def observed(make: Callable[[], Observer], threads: int = 64) -> None:
    program(BODY, ".param .u64 p").launch("k", (1, 1, 1), (threads, 1, 1), [np.zeros(1024, np.uint8)], observer=make())


def test_an_observer_is_told_of_accesses_copies_barriers_and_guards() -> None:
    seen = Recorder()
    observed(lambda: seen)
    # The first ld is of the parameter; two warps of 32 lanes, of which the first 8 of the CTA load 8 bytes each.
    # Thread t of a state of two warps is lane t // 2 of warp t % 2.
    copied = [16 * (t // 2 + 32 * (t % 2)) for t in range(64)]
    assert seen.events == [
        ("begin", 1),
        ("issue", "ld", 64),
        ("watch", "ld", 64),
        ("copy", 16, copied, list(range(64))),
        ("land", "shared memory", 16, 64, list(range(64))),
        ("come", 2, 0, 64),
        ("join", 2, 64, 64),
        ("issue", "ld", 64),
        ("watch", "ld", 8),
        ("load", 8, [16 * lane + 8 for lane in range(8)], [2 * lane for lane in range(8)]),
        ("meet", "bar", 64),
        ("end",),
    ]


def test_several_observers_are_told_the_same() -> None:
    one, two = Recorder(), Recorder()
    observed(lambda: Observers([one, Observer(), two]))
    assert one.events == two.events
    assert len(one.events) == 12


def test_half_a_cta_completes_a_barrier_with_a_count() -> None:
    seen = Recorder()
    body = "mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 6; add.u32 %r2, %r2, 1; bar.sync %r2, 64;"
    program(body).launch("k", (2, 1, 1), (128, 1, 1), [], observer=seen)
    events = [e for e in seen.events if e[0] in ("come", "join")]
    assert events == [("come", 1, 64, 128), ("join", 1, 128, 128), ("come", 2, 64, 128), ("join", 2, 128, 128)]


def test_a_thread_that_arrives_is_told_apart_from_one_that_waits() -> None:
    seen = Recorder()
    body = """mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 bra WAIT; bar.arrive 3, 64; bra END;
        WAIT: bar.sync 3, 64; END:"""
    program(body).launch("k", (1, 1, 1), (64, 1, 1), [], observer=seen)
    events = [e for e in seen.events if e[0] in ("come", "join")]
    assert events == [("come", 3, 64, 32), ("come", 3, 64, 32), ("join", 3, 64, 32)]
