"""Runs some CTAs of a decoded kernel concurrently, and detects when they make no progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NoReturn

import numpy as np

from ....dialect.isa.wgmma import WARPS
from ....dialect.ptx.instructions import TENSOR_CORES
from ....dialect.ptx.text.syntax import Address, Symbol, bits_of, ranges
from ...base.launch import Launch, Options, Progress
from ...numerics.floats import Array
from . import memory as spaces
from .events import LEFT, BoundStep, CtaQueue, Geometry, Look, Selection, SharedWindow
from .flow import OF_WARPGROUPS, Flow, Replay, apart, parted, together
from .kernel import Decoded, DecodedKernel, Observer
from .mbarriers import MbarrierObjects, OperationGroups
from .memory import Buffer, FaultError, Finding, GlobalBuffers, InterpreterError, MachineLimitError
from .state import RESERVED_BYTES, Prints, State, align
from .tensor_memory import TensorMemory

# Launches in which every thread left goes round in a loop, or waits, and nothing changes any more.
#
# Where threads have run and all registers, all memory and all places are what they were before, the same follows again:
# loops that poll a word which nobody will write do not end. Loops that count, or read a clock, may end: they go on.

FIRST = 64
"""Turns of groups of threads after which the state is saved first, then after twice as many, and so on."""

_EVERY, _LOOKS = 37, 16
"""Turns between two comparisons with the saved state, and how many comparisons follow each time it is saved."""


class Standstill:
    """Detects that the CTAs in flight make no progress: their state is as it was when it was saved."""

    def __init__(self, state: State, memory: GlobalBuffers, code: Sequence[Decoded]) -> None:
        self._state = state
        self._memory = memory
        self._code = code
        self._turns, self._saved_at = 0, FIRST
        self._ran: set[int] = set()
        self._places: list[tuple[int, bytes]] = []
        self._registers: list[Array] = []
        self._bytes: list[Array] | None = None

    def turn(self, pc: int) -> bool:
        """Notes that a group of threads has run from `pc`. Returns whether the state will not change any more."""
        self._turns += 1
        if self._turns < FIRST:
            return False
        self._ran.add(pc)
        if self._turns == self._saved_at:
            self._places, self._registers = self._where(), [bank.copy() for bank in self._state.banks.values()]
            self._bytes, self._saved_at = None, 2 * self._turns
            self._ran.clear()
            return False
        looks, rest = divmod(self._turns - self._saved_at // 2, _EVERY)
        return not rest and looks <= _LOOKS and self._is_as_before()

    def _is_as_before(self) -> bool:
        """Whether the state equals the saved one, after every runnable thread has run. If all threads wait at
        mbarriers, that is a deadlock, which is detected when they sleep."""
        same = self._places == self._where() and all(
            np.array_equal(a.view(np.uint8), b.view(np.uint8))
            for a, b in zip(self._registers, self._state.banks.values(), strict=True)
        )
        ready = self._state.flow.ready
        if not same or not self._ran.issuperset(ready) or all(map(self._waits, ready)):
            return False
        memory = self._state.memory
        buffers = (memory.shared.buffer, memory.local.buffer, *self._memory.buffers())
        contents = [buffer.data for buffer in buffers if buffer.writable]
        before, self._bytes = self._bytes, [data.copy() for data in contents]
        self._ran.clear()
        if before is None or len(before) != len(contents):
            return False
        return all(np.array_equal(a, b) for a, b in zip(before, contents, strict=True))

    def _waits(self, pc: int) -> bool:
        """Whether threads at `pc` are in a loop around a wait for an mbarrier object."""
        last = self._state.flow.loops.get(pc, pc)
        return any(decoded.traits.on_mbarrier for decoded in self._code[max(pc - 1, 0) : last + 1])

    def _where(self) -> list[tuple[int, bytes]]:
        """The state of all threads and of pending operations."""
        flow, mbarriers = self._state.flow, self._state.mbarriers
        waiting = [(b.pc, b.mask) for b in flow.barriers] + mbarriers.waiting()
        places = [*flow.ready.items(), *flow.parked.items(), *waiting]
        flying = (len(mbarriers.deferred), len(mbarriers.bulk), self._state.copies.issued)
        return [*sorted((pc, mask.tobytes()) for pc, mask in places), *((n, b"") for n in flying)]


def polled(state: State, code: Sequence[Decoded], loops: Mapping[int, int], pc: int, thread: int) -> Iterator[str]:
    """The memory that a thread polls in the loop that begins at `pc`, with its contents."""
    for decoded in code[pc : loops.get(pc, pc) + 1]:
        where = next((o for o in decoded.source.operands if isinstance(o, Address)), None)
        traits = decoded.traits
        if where is None or traits.root not in ("ld", "atom") or traits.space in ("param", "const", "local"):
            continue
        source = decoded.source
        yield f"{_word(state, decoded, where, thread)} at line {source.line} ({source.opcode})"


def _word(state: State, decoded: Decoded, where: Address, thread: int) -> str:
    """The word at the address of a thread's operand, as messages name it."""
    width, shared = bits_of(decoded.traits.types[-1]) // 8, decoded.traits.space == "shared"
    slot = decoded.slot(where.base)
    place = decoded.places[0] if isinstance(where.base, Symbol) and decoded.places else None
    if slot is None and place is None:
        return "memory"
    start = int(state.banks[slot.bits][slot.index][thread]) if slot else place.address(state) if place else 0
    shared |= place is not None and place.space == "shared"
    one = Selection.of(thread, state.threads)
    addresses = np.array([start + where.offset], np.int64 if shared else np.uint64)
    try:
        (part,) = (state.memory.cluster if shared else state.memory.memory).parts(addresses, width, one.lanes)
    except FaultError:  # The thread finds it out when it runs.
        return "memory"
    at = int(part.index[0]) * width
    value = int.from_bytes(part.buffer.data[at : at + width].tobytes(), "little")
    if part.buffer is state.memory.shared.buffer:
        return f"shared memory at {at % (part.buffer.size // state.geometry.ctas):#x}, where {value} is,"
    return f"byte {at} of {part.buffer.name}, where {value} is,"


TURN = 1 << 14
"""Steps after which a group of threads gives way to others that can run."""
POLLS = 32
"""Rounds of a loop that polls memory after which others that can run do."""


@dataclass(frozen=True)
class KernelRun:
    """One kernel launch: the kernel, its geometry, memory and arguments, and what it is asked for."""

    kernel: DecodedKernel
    sizes: Launch
    options: Options
    memory: GlobalBuffers
    parameters: Array
    addresses: dict[str, int]
    progress: Progress | None
    observer: Observer | None
    queue: CtaQueue = field(default_factory=CtaQueue)


@dataclass
class Stats:
    """What a launch did: `steps` of groups of threads, the sum of the groups' sizes, and `notes` of checks."""

    steps: int = 0
    threads: int = 0
    notes: tuple[Finding, ...] = ()


def geometry_of(launch: KernelRun, first: int, ctas: int) -> Geometry:
    together = WARPS if launch.kernel.uses(OF_WARPGROUPS) else 1
    return Geometry(launch.sizes.grid, launch.sizes.block, first, ctas, launch.sizes.cluster or (1, 1, 1), together)


def _own_bytes(launch: KernelRun) -> int:
    """Shared memory of a kernel in bytes: the padded static part and the dynamic one."""
    return launch.kernel.layout.shared + launch.sizes.shared


def shared_bytes(launch: KernelRun) -> int:
    """Shared memory of a CTA in bytes: the kernel's own, then the reserved part."""
    own = _own_bytes(launch)
    return align(own, 128) + RESERVED_BYTES if launch.kernel.layout.reserves else own


class Machine:
    """The CTAs in flight."""

    def __init__(self, launch: KernelRun, geometry: Geometry, stats: Stats) -> None:
        self.launch, self.geometry, self.stats = launch, geometry, stats
        self.kernel, self.max_steps = launch.kernel, launch.options.max_steps or sys.maxsize
        state = State(geometry, self.kernel.layout.slots, self._memory(), launch.addresses)
        state.dynamic_bytes, state.explicit_cluster = launch.sizes.shared, launch.sizes.cluster is not None
        state.shared_bytes = state.reserved = align(_own_bytes(launch), 128)
        state.multiprocessors = self.kernel.layout.multiprocessors
        self.flow = state.flow = Flow(geometry, state.live, self.kernel.entry)
        state.prints, state.queue = Prints(), launch.queue
        state.copies, state.bulk_groups = OperationGroups(state.threads), OperationGroups(state.threads)
        state.warpgroups = OperationGroups(-(-state.warps // WARPS))
        self.flow.observer = state.observer = launch.observer
        state.mbarriers = MbarrierObjects(state.memory.shared.buffer.view(8), self.flow, state.copies)
        if self.kernel.uses(TENSOR_CORES):
            state.tensor = TensorMemory(geometry, self.flow)
        if launch.observer is not None:
            launch.observer.begin(state, self.kernel)
        self.state, self.mbarriers = state, state.mbarriers
        self.steps = [self._bind(pc, decoded) for pc, decoded in enumerate(self.kernel.code)]

    def _memory(self) -> spaces.MemorySpaces:
        geometry, memory, size = self.geometry, self.launch.memory, shared_bytes(self.launch)
        stride = align(size, 128)
        data = Buffer("shared memory", np.zeros(geometry.ctas * stride, np.uint8))
        shared, cluster = (SharedWindow(data, geometry, stride, size, remote) for remote in (False, True))
        local_size = self.kernel.layout.local_bytes
        own = align(local_size, 16)
        local_data = Buffer("local memory", np.zeros(geometry.threads * own, np.uint8))
        local = spaces.Window("local", local_data, np.arange(geometry.threads) * own, local_size)
        zeros = np.broadcast_to(np.int64(0), (geometry.threads,))
        parameters = Buffer("kernel parameters", self.launch.parameters, writable=False)
        param = spaces.ParameterWindow(parameters, zeros, self.kernel.layout.parameter_bytes, local)
        memory.windows.update({spaces.SHARED_WINDOW: cluster, spaces.LOCAL_WINDOW: local, spaces.PARAM_WINDOW: param})
        return spaces.MemorySpaces(memory, shared, cluster, local, param)

    def _bind(self, pc: int, decoded: Decoded) -> BoundStep:
        inner, observer = decoded.action(self.state), self.state.observer
        if decoded.polls:
            inner = _patient(inner, pc, self.flow)
        if observer is not None:
            inner = _watched(inner, observer.watch(pc))
        if decoded.traits.takes_whole_warps:
            inner = _assembled(inner, pc, self.flow, together(decoded.row))
        if decoded.guard is not None:
            predicate = self.state.banks[1][decoded.guard.index]
            inner = _guarded(inner, predicate, decoded.negated, pc + 1, self.flow)
        return inner if observer is None else _watched(inner, observer.issue(pc))

    # Running

    def run(self) -> None:
        try:
            self._run()
        finally:
            self.state.prints.flush(self.launch.options.output or sys.stdout.write)
        if self.launch.observer is not None:
            self.launch.observer.end()
        # Callbacks and operations in flight refer to the state, and it to them: without them it is freed at once.
        self.flow.on_exit.clear()
        for groups in (self.state.copies, self.state.bulk_groups, self.state.warpgroups):
            groups.pending.clear()

    def _run(self) -> None:
        tired, standstill = False, Standstill(self.state, self.launch.memory, self.kernel.code)
        if self.launch.options.order is not None and not self.geometry.first:
            Replay(self.launch.options.order).run(self.flow, self._one)
        while (group := self._next(tired)) is not None:
            tired = self._advance(*group) or self.flow.gave_way()
            if self.stats.steps >= self.max_steps:
                self._out_of_steps(next(reversed(self.flow.ready), group[0]))
            if standstill.turn(group[0]):
                self._livelock()
        if self.flow.barriers or self._all_waiting():
            self._deadlock()

    def _one(self, pc: int, mask: Array) -> None:
        if self.stats.steps >= self.max_steps:
            self._out_of_steps(pc)
        self._advance(pc, mask, budget=1)

    def _next(self, tired: bool) -> tuple[int, Array] | None:
        """The group to run; None if none can. Then, or if one ran for long, threads at mbarriers test them again."""
        if tired and self.mbarriers.sleepers:
            self.mbarriers.give_up()
        group = self.flow.next(oldest=tired)
        while group is None and self.mbarriers.stir():
            group = self.flow.next(oldest=False)
        return group

    def _advance(self, pc: int, mask: Array, budget: int = TURN) -> bool:
        """Runs one group until it meets others, splits, waits or ends. Returns whether it used up its turn."""
        sel = self.state.all if mask.all() else Selection(mask, self.state.threads)
        limit = self.flow.limit(pc)
        turn = min(budget, self.max_steps - self.stats.steps)
        steps, done = self.steps, 0
        try:
            while done < turn:
                done += 1
                result = steps[pc](sel)
                if result is None:
                    pc += 1
                elif result == LEFT:
                    return False
                else:
                    pc = result
                if pc >= limit:
                    break
        except FaultError as fault:
            self._fail(pc, fault)
        finally:
            self.stats.steps += done
            self.state.clock.ticks += done
            self.stats.threads += done * sel.count
        self.flow.go(pc, self.flow.mask(sel))
        return done == turn

    # Errors

    def _fail(self, pc: int, fault: FaultError) -> NoReturn:
        message = f"{self.kernel.code[pc].source.opcode}: {fault.message}"
        finding = self.kernel.finding(fault.check, pc, message, self.geometry, fault.thread, fault.address)
        raise InterpreterError(str(finding), [finding])

    def _out_of_steps(self, pc: int) -> NoReturn:
        message = f"the launch took more than {self.max_steps} steps; it is near this instruction"
        finding = self.kernel.finding(MachineLimitError.check, pc, message)
        raise InterpreterError(f"{finding}. If this is no endless loop, a larger max_steps lets it go on", [finding])

    def _deadlock(self) -> NoReturn:
        for pc, members in self.flow.awaited.items():
            if members is None and pc in self.flow.parked:
                self._never_together(pc)
        waiting = self._all_waiting() or [(b.pc, b.mask) for b in self.flow.barriers]
        thread = min(int(np.flatnonzero(mask)[0] % self.state.warps) for _, mask in waiting)
        cta, _, _ = self.geometry.place(thread)
        mine = self.state.geometry.cta() == thread // self.geometry.warps_per_cta
        places = [self._waiting(pc, mask & mine) for pc, mask in waiting if (mask & mine).any()]
        exited = self._warps(~self.flow.live & mine)
        if exited:
            places.append(f"warps {exited} have threads that exited")
        message = f"deadlock: every thread left waits for others; {'; '.join(places)}"
        finding = replace(self.kernel.finding("fault", waiting[0][0], message), cta=cta)
        raise InterpreterError(str(finding), [finding])

    def _livelock(self) -> NoReturn:
        ready = sorted(self.flow.ready.items())
        thread = min(int(np.flatnonzero(mask)[0] % self.state.warps) for _, mask in ready)
        cta, each = self.geometry.place(thread)[0], self.geometry.warps_per_cta
        mine = self.state.geometry.cta() == thread // each
        waiting: dict[int, Array] = {}
        for pc, mask in self._all_waiting():
            waiting[pc] = waiting.get(pc, False) | (mask & mine)
        places = [self._spins(pc, mask & mine) for pc, mask in ready if (mask & mine).any()]
        places += [self._waiting(pc, mask) for pc, mask in waiting.items() if mask.any()]
        others = int(np.count_nonzero(self.flow.live.reshape(-1, self.geometry.ctas, each).any(axis=(0, 2)))) - 1
        places += [f"{others} other CTA{'s do' if others > 1 else ' does'} not go on either"] if others else []
        started, total = self.geometry.first + self.geometry.ctas, prod(self.geometry.grid)
        places += [f"{total - started} of the grid's CTAs begin when these have ended"] if started < total else []
        message = f"livelock: every thread left waits for what none of them will do; {'; '.join(places)}"
        check = MachineLimitError.check if started < total else FaultError.check
        finding = replace(self.kernel.finding(check, ready[0][0], message), cta=cta)
        raise InterpreterError(str(finding), [finding])

    def _spins(self, pc: int, mask: Array) -> str:
        """What threads do in the loop in which they are at `pc`."""
        words = list(polled(self.state, self.kernel.code, self.flow.loops, pc, int(np.flatnonzero(mask)[0])))
        line = self.kernel.code[pc].source.line
        what = f"read {' and '.join(words)} again and again" if words else f"go round in a loop at line {line}"
        return f"warps {self._warps(mask)} {what}"

    def _all_waiting(self) -> list[tuple[int, Array]]:
        """The program counters and masks of waiting threads."""
        waiting = [(b.pc, b.mask) for b in self.flow.barriers if b.resume != LEFT] + list(self.flow.parked.items())
        waiting += self.mbarriers.waiting()
        return waiting + (self.state.tensor.waiting() if self.kernel.uses(TENSOR_CORES) else [])

    def _never_together(self, pc: int) -> NoReturn:
        """Lanes of a warp came to an `.aligned` instruction, and others wait elsewhere."""
        thread, gone = self.flow.missing(pc)
        lanes, opcode = bool(gone.any()), self.kernel.code[pc].source.opcode
        if not lanes:  # Of its warpgroup, whole warps.
            group = np.arange(self.state.threads) % self.state.warps // WARPS
            gone = self.flow.live & ~self.flow.parked[pc] & (group == group[thread])
        first = int(np.flatnonzero(gone)[0])
        message = apart(opcode, first // self.state.warps) if lanes else parted(opcode, self.geometry.place(first)[1])
        for other, mask in self._all_waiting():
            if mask[first]:
                source = self.kernel.code[other].source
                message += f" and waits at line {source.line} ({source.opcode})"
        self._fail(pc, FaultError(message, first))

    def _waiting(self, pc: int, mask: Array) -> str:
        source = self.kernel.code[pc].source
        lacking = self.mbarriers.lacking(pc, mask)
        text = f"warps {self._warps(mask)} wait at line {source.line} ({source.opcode}){lacking}"
        if pc not in self.flow.parked:
            return text
        thread, gone = self.flow.missing(pc)
        _, warp, _ = self.geometry.place(thread)
        lanes = ranges(np.flatnonzero(gone) // self.state.warps)
        return f"{text}, of warp {warp} for lanes {lanes}, which the member mask names" if lanes else text

    def _warps(self, mask: Array) -> str:
        """The warps of the masked threads, in their CTA: "0-2, 5"."""
        return ranges(np.flatnonzero(mask) % self.state.warps % self.geometry.warps_per_cta)


def _watched(inner: BoundStep, look: Look | None) -> BoundStep:
    if look is None:
        return inner

    def step(sel: Selection) -> int | None:
        look(sel)
        return inner(sel)

    return step


def _assembled(inner: BoundStep, pc: int, flow: Flow, warps: int) -> BoundStep:
    """A step of whole warps, or groups of `warps` warps. Its lanes wait until all that have not exited arrive."""

    def step(sel: Selection) -> int | None:
        if sel.mask is None:
            return inner(sel)
        warp = flow.assemble(sel, pc, warps)
        if warp is None or warp is sel:
            return LEFT if warp is None else inner(sel)
        result = inner(warp)
        if result != LEFT:
            flow.go(pc + 1 if result is None else result, flow.mask(warp))
        return LEFT

    return step


def _patient(inner: BoundStep, pc: int, flow: Flow) -> BoundStep:
    """A backward branch that yields to other warps now and then, since the loop may wait for them."""
    rounds = 0

    def step(sel: Selection) -> int | None:
        nonlocal rounds
        target = inner(sel)
        rounds += 1
        if rounds % POLLS or target is None:
            return target
        flow.loops[target] = pc
        flow.give_way(target, flow.mask(sel))
        return LEFT

    return step


def _guarded(inner: BoundStep, predicate: Array, negated: bool, following: int, flow: Flow) -> BoundStep:
    """A step that runs `inner` where the predicate holds. The other threads go on at the next instruction."""

    def step(sel: Selection) -> int | None:
        taken = sel.where(~predicate if negated else predicate)
        if taken.count == 0:
            return None
        result = inner(taken)
        if result is None or taken.count == sel.count:
            return result
        rest = flow.mask(sel)
        rest &= ~flow.mask(taken)
        flow.go(following, rest)
        if result != LEFT:
            flow.go(result, flow.mask(taken))
        return LEFT

    return step
