"""The shadow of a machine: planes of registers and memory, in which instructions move codes as they move data.

Each plane is a state of its own, with the geometry, the addresses and the control flow of the machine. An instruction
that moves bytes is executed in each plane, with the registers that hold addresses as they are in the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...dialect.ptx.text.syntax import Address, Immediate, Indexed, Instruction, Operand, Vector
from ..interp.machine import memory as windows
from ..interp.machine.decode import Context, Multiply, Updates, meaning_of
from ..interp.machine.events import BoundStep, Selection, SharedWindow
from ..interp.machine.flow import Flow
from ..interp.machine.kernel import Decoded
from ..interp.machine.mbarriers import BulkCopy, MbarrierObjects, OperationGroups
from ..interp.machine.memory import Buffer, MachineLimitError, Window
from ..interp.machine.state import Action, Prints, RegisterSlot, State, StorageLayout, align
from ..interp.machine.tensor_memory import TensorMemory
from ..numerics.floats import Array
from .values import PLANES


class PlaneMemory:
    """The planes of everything in global memory, by where the data lie: views of one array have views of its planes.
    Data are kept alive, so that nothing else comes to lie there."""

    def __init__(self) -> None:
        self._regions: list[tuple[int, int, Array, Array]] = []

    def of(self, data: Array) -> Array:
        """The planes (planes, bytes) of bytes."""
        start = int(data.ctypes.data)
        for first, end, _, planes in self._regions:
            if first <= start and start + data.size <= end:
                return planes[:, start - first : start - first + data.size]
        planes = np.zeros((PLANES, data.size), np.uint8)
        self._regions.append((start, start + data.size, data, planes))
        return planes


class Issued(OperationGroups):
    """The operations that a plane issues; it collects what they execute."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.collected: list[tuple[Array | None, Callable[[Array], None]]] = []

    def issue(self, agents: Array | None, execute: Callable[[Array], None]) -> None:
        self.collected.append((agents, execute))


class Landings(MbarrierObjects):
    """The mbarrier objects of a plane; it collects the copies that an instruction starts."""

    def __init__(self, flow: Flow, copies: OperationGroups) -> None:
        super().__init__(np.zeros(0, np.uint64), flow, copies)
        self.sent: list[BulkCopy] = []

    def complete_later(self, copy: BulkCopy, one: Selection) -> None:
        self.sent.append(copy)


class MirroredObjects(MbarrierObjects):
    """The mbarrier objects; what a plane was sent lands there when the copy itself does."""

    planes: Sequence[Landings] = ()

    def complete_later(self, copy: BulkCopy, one: Selection) -> None:
        mine = [plane.sent.pop(0) for plane in self.planes if plane.sent]

        def landed() -> None:
            for sent in mine:
                sent.land()

        copy.landed = landed
        super().complete_later(copy, one)


class PlaneTensor(TensorMemory):
    """Tensor memory of a plane. Metadata are those of the machine."""

    def __init__(self, real: TensorMemory, words: Array) -> None:
        super().__init__(real.geometry, real.flow)
        self.real, self.words, self.owner = real, words, real.owner
        self.products = self.issued = Issued(real.products.count)
        self.moves["st"] = self.stores = Issued(real.geometry.warps)

    def metadata(self, cta: int, base: int) -> Array:
        if super().metadata(cta, base).any():
            raise MachineLimitError("data decides the columns of a sparse A", 0)
        return self.real.metadata(cta, base)


class Mirror:
    """The planes of the CTAs in flight: of registers by bits (registers, planes, threads), and of tensor memory."""

    def __init__(self, real: State, layout: StorageLayout, memory: PlaneMemory) -> None:
        self.real = real
        slots, threads = layout.slots.items(), real.threads
        kinds = {bits: bank.dtype for bits, bank in real.banks.items()}
        self.banks = {bits: np.zeros((n, PLANES, threads), kinds.get(bits, np.uint32)) for bits, n in slots}
        self.shared = np.zeros((PLANES, real.memory.shared.buffer.size), np.uint8)
        self.local = np.zeros((PLANES, real.memory.local.buffer.size), np.uint8)
        self.memory = memory
        self.buffers: dict[int, Array] = {}
        objects = MirroredObjects(real.memory.shared.buffer.view(8), real.flow, real.copies)
        real.mbarriers = objects
        copies = [Issued(threads) for _ in range(PLANES)]
        self.products = [Issued(real.warpgroups.count) for _ in range(PLANES)]
        self.landings = [Landings(real.flow, queue) for queue in copies]
        self.tensors: list[PlaneTensor] = []
        self.queues: list[tuple[OperationGroups, list[Issued]]] = [(real.copies, copies)]
        self.tensor = np.zeros((PLANES, 0), np.uint32)
        if hasattr(real, "tensor"):
            self.tensor = np.zeros((PLANES, *real.tensor.words.shape), np.uint32)
            self.tensors = [PlaneTensor(real.tensor, words) for words in self.tensor]
            self.queues.append((real.tensor.products, [tensor.issued for tensor in self.tensors]))
            self.queues.append((real.tensor.moves["st"], [tensor.stores for tensor in self.tensors]))
            self.buffers[id(real.tensor.buffer)] = self.tensor.reshape(PLANES, -1).view(np.uint8)
        self.planes = [self._plane(k, copies[k]) for k in range(PLANES)]
        objects.planes = self.landings

    def _plane(self, k: int, copies: OperationGroups) -> State:
        real = self.real.memory
        geometry = self.real.geometry
        shared = Buffer("shadow of shared memory", self.shared[k])
        stride = align(real.shared.size, 128)
        own, cluster = (SharedWindow(shared, geometry, stride, real.shared.size, remote) for remote in (False, True))
        local = Window("local", Buffer("shadow of local memory", self.local[k]), real.local.base, real.local.size)
        maps, plain = (
            windows.ParameterWindow(buffer, real.param.base, real.param.size, local)
            for buffer in (real.param.buffer, Buffer("parameters", np.zeros_like(real.param.buffer.data)))
        )
        memory = real.memory.mirrored(lambda buffer: Buffer(buffer.name, self._of(buffer)[k], buffer.writable))
        memory.windows.update({windows.SHARED_WINDOW: cluster, windows.LOCAL_WINDOW: local, windows.PARAM_WINDOW: maps})
        spaces = windows.MemorySpaces(memory, own, cluster, local, plain)
        state = State(geometry, {}, spaces, self.real.addresses)
        state.banks, state.flow = {bits: bank[:, k] for bits, bank in self.banks.items()}, self.real.flow
        state.bulk_groups, state.prints = OperationGroups(state.threads), Prints()
        state.copies, state.warpgroups = copies, self.products[k]
        state.mbarriers = self.landings[k]
        if self.tensors:
            state.tensor = self.tensors[k]
        return state

    def _of(self, buffer: Buffer) -> Array:
        """The planes of a buffer. Those of a copied tensor map are its bytes, for instructions read them."""
        planes = self.memory.of(buffer.data)
        if "tensor map" in buffer.name:
            planes[...] = buffer.data
        self.buffers[id(buffer)] = planes
        return planes

    def words(self, slot: RegisterSlot) -> Array:
        """The planes (planes, threads) of a register."""
        return self.banks[slot.bits][slot.index]

    def values_of(self, buffer: Buffer) -> Array | None:
        """The planes of a buffer that may hold values; None for a buffer without values."""
        own = buffer is self.real.memory.shared.buffer or buffer is self.real.memory.local.buffer
        if not own and (id(buffer) not in self.buffers or "tensor map" in buffer.name):
            return None
        return self.memory_of(buffer)

    def memory_of(self, buffer: Buffer) -> Array:
        """The planes of a buffer in any space."""
        if buffer is self.real.memory.shared.buffer:
            return self.shared
        return self.local if buffer is self.real.memory.local.buffer else self.buffers[id(buffer)]

    def run(self, steps: Sequence[BoundStep], sel: Selection, control: Iterable[RegisterSlot]) -> None:
        """Executes an instruction in each plane, with control registers as they are in the machine."""
        slots = tuple(control)
        for k, step in enumerate(steps):
            with_control(self.banks, k, self.real, slots, lambda step=step: step(sel))

    def pass_on(self) -> None:
        """Lets what the planes have issued complete with the machine's next operation."""
        for groups, queues in self.queues:
            while queues[0].collected:
                sent = [queue.collected.pop(0) for queue in queues]
                groups.issue(sent[0][0], partial(_execute, [run for _, run in sent]))


def _execute(runs: Iterable[Callable[[Array], None]], done: Array) -> None:
    for run in runs:
        run(done)


def with_control(
    banks: Mapping[int, Array], k: int, real: State, slots: Sequence[RegisterSlot], act: Callable[[], object]
) -> None:
    """Does something while registers of a plane are as in the machine."""
    rows = [banks[slot.bits][slot.index, k] for slot in slots]
    before = [row.copy() for row in rows]
    for row, slot in zip(rows, slots, strict=True):
        row[...] = real.banks[slot.bits][slot.index]
    act()
    for row, old in zip(rows, before, strict=True):
        row[...] = old


# Instructions decoded once more, for the planes.


@dataclass(frozen=True)
class Operands:
    """The registers of an instruction: `control` decide where and how, `data` are computed with, `results` written."""

    control: tuple[RegisterSlot, ...]
    data: tuple[RegisterSlot, ...]
    results: tuple[RegisterSlot, ...]


CONTROL: Mapping[str, tuple[int, ...]] = {"cp.async": (2, 3), "wmma.load": (2,), "wmma.store": (2,)}
"""Operands, by their place, that say how much or how, of instructions whose other registers are addresses or data."""

ALL_CONTROL = ("cp.async.bulk", "tensor.load", "tensor.store", "st.bulk", "cp.reduce.async.bulk", "tcgen05.mma",
               "tcgen05.cp", "tcgen05.shift")  # fmt: skip


def operands_of(decoded: Decoded) -> Operands:
    """The registers of an instruction that moves bytes of memory, or multiplies matrices."""
    control: list[RegisterSlot] = []
    data: list[RegisterSlot] = []
    written = set(decoded.writes)
    means = decoded.row.means
    for number, operand in enumerate(decoded.source.operands):
        is_control = isinstance(operand, Address | Indexed) or number in CONTROL.get(means, ()) or means in ALL_CONTROL
        for slot in decoded.slots(operand):
            if is_control or (slot.bits == 64 and means == "wgmma.mma_async") or slot.bits == 1:
                control.append(slot)
            elif slot not in written or slot in decoded.reads:
                data.append(slot)
    if means in ("mma", "wgmma.mma_async") and "e" in (named := decoded.named()):
        metadata = decoded.slots(named["e"])
        control += metadata
        data = [slot for slot in data if slot not in metadata]
    return Operands(tuple(dict.fromkeys(control)), tuple(dict.fromkeys(data)), decoded.writes)


def again(decoded: Decoded, layout: StorageLayout, **stands: Multiply | Updates) -> Context:
    """The context in which an instruction is decoded again, with what stands for its arithmetic."""
    context = replace(decoded.context, layout=layout, reads=[], writes=[], places=[], **stands)
    context.row = decoded.row
    return context


def action_again(decoded: Decoded, context: Context) -> Action:
    """The action of an instruction that is decoded again."""
    return meaning_of(decoded.row.means)(context, decoded.traits.bindings)


def blank(source: Instruction) -> Instruction:
    """A store with 0 for literals, which are data; other instructions as they are."""
    return source if source.root != "st" else source._replace(operands=tuple(map(_without_literals, source.operands)))


def _without_literals(operand: Operand) -> Operand:
    if isinstance(operand, Immediate):
        return Immediate("0f00000000" if isinstance(operand.value, float) else "0")
    if isinstance(operand, Vector):
        return replace(operand, items=tuple(map(_without_literals, operand.items)))
    return operand
