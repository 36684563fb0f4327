"""What an interpreted launch did, by instructions, and what its accesses cost: what one opens a profiler for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....dialect.isa.mma import Mma
from ....dialect.isa.wmma import WmmaMma
from ....dialect.ptx.instructions import traits
from ...base.launch import Dim3, Problem
from ...numerics.floats import Array
from ..machine.calls import RETURN
from ..machine.events import LANES, Look, MemoryAccess, Selection, warps_with
from ..machine.kernel import Decoded, DecodedKernel, Observer
from ..machine.memory import SPAN_BITS
from ..machine.state import State


@dataclass(frozen=True)
class Executed:
    """One instruction of the text: how many warps executed it, and how many of their lanes, those aside for which its
    guard does not hold. `source` is the line that it was compiled from, if the text says so; of accesses too."""

    line: int
    column: int
    opcode: str
    warps: int
    lanes: int
    source: str = ""


@dataclass(frozen=True)
class SharedAccess:
    """The shared memory accesses of one instruction. `kind` is load, store, atomic or copy. `ideal` is how many
    wavefronts the requests of the warps would take without bank conflicts, `worst` how many that request took that took
    most."""

    line: int
    column: int
    opcode: str
    kind: str
    requests: int
    wavefronts: int
    ideal: int
    worst: int
    source: str = ""

    @property
    def extra(self) -> int:
        """Additional wavefronts by bank conflicts."""
        return self.wavefronts - self.ideal


@dataclass(frozen=True)
class GlobalAccess:
    """The global memory accesses of one instruction. `sectors` is the number of 32-byte sectors that the requests of
    the warps touch. `ideal` is the least number that could hold the requested bytes."""

    line: int
    column: int
    opcode: str
    kind: str
    requests: int
    sectors: int
    ideal: int
    source: str = ""

    @property
    def extra(self) -> int:
        """Sectors that a denser layout would not touch."""
        return self.sectors - self.ideal


@dataclass(frozen=True)
class MatrixProducts:
    """The number of executions of one `mma`, `mma.sp` or `wmma.mma`, and its shape (for a sparse A, the dense shape). A
    warp computes `side_by_side` such products at once."""

    opcode: str
    shape: Problem
    side_by_side: int
    warps: int

    @property
    def multiply_adds(self) -> int:
        return self.warps * self.side_by_side * self.shape.multiply_adds

    def needed(self, problem: Problem) -> int:
        """The smallest number of these instructions for a product."""
        tiles = -(-problem.m // self.shape.m) * -(-problem.n // self.shape.n) * -(-problem.k // self.shape.k)
        return -(-tiles * problem.batch // self.side_by_side)


@dataclass(frozen=True)
class LaunchReport:
    """The counts of one launch, for each instruction. docs/report.md says what is counted.

    - `instructions`: the instructions that were executed, and by how many warps and lanes.
    - `shared`, `global_`: the accesses of each instruction to shared and to global memory.
    - `products`: the matrix instructions.
    - `uncounted`: the instructions whose accesses are not counted, and why.
    - `problem`: the product that the launch computes, if that is known.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    instructions: tuple[Executed, ...]
    shared: tuple[SharedAccess, ...]
    global_: tuple[GlobalAccess, ...]
    products: tuple[MatrixProducts, ...]
    uncounted: tuple[str, ...] = ()
    problem: Problem | None = None

    def against(self, problem: Problem | None) -> LaunchReport:
        """The same report, compared with the product that the launch computes."""
        return replace(self, problem=problem)

    @property
    def mix(self) -> dict[str, int]:
        """The number of warps that executed each opcode, the most frequent first."""
        warps: dict[str, int] = {}
        for item in self.instructions:
            warps[item.opcode] = warps.get(item.opcode, 0) + item.warps
        return dict(sorted(warps.items(), key=lambda item: -item[1]))

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of all matrix instructions that were executed."""
        return sum(item.multiply_adds for item in self.products)

    @property
    def useful(self) -> float | None:
        """The fraction of the multiply-adds that the problem needs; None without a problem or matrix instructions."""
        if self.problem is None or not self.multiply_adds:
            return None
        return self.problem.multiply_adds / self.multiply_adds

    def as_json(self) -> dict[str, Any]:
        """The report and its totals as JSON objects."""
        fields = asdict(self)
        fields["global"] = fields.pop("global_")
        fields["problem"] = self.problem and str(self.problem)
        for item, product in zip(fields["products"], self.products, strict=True):
            item |= {"shape": str(product.shape), "multiply_adds": product.multiply_adds}
            item["needed"] = self.problem and product.needed(self.problem)
        return {
            **fields,
            "mix": self.mix,
            "multiply_adds": self.multiply_adds,
            "useful": self.useful,
            "wavefronts": total(self.shared, "wavefronts"),
            "wavefronts_extra": total(self.shared, "extra"),
            "sectors": total(self.global_, "sectors"),
            "sectors_extra": total(self.global_, "extra"),
        }


def total(items: Sequence[SharedAccess | GlobalAccess], name: str) -> int:
    """The sum of one of the counts."""
    return sum(getattr(item, name) for item in items)


# The observer that counts what a launch does, and what accesses to memory cost.

# What accesses to memory cost: wavefronts of shared memory, sectors of global memory.
#
# Shared memory has 32 banks of 4 bytes, of which each delivers one word a wavefront, to any number of lanes. A warp's
# accesses of up to 4 bytes are served together; those of 8 bytes half-warp by half-warp, those of 16 bytes, as the
# rows of `ldmatrix`, eight lanes at a time (CUDA C++ Programming Guide, compute capability 5.x and later; CUDA C++
# Best Practices Guide, shared memory). Global memory is moved in sectors of 32 bytes.
#
# A request is what one warp asks for with one instruction. Pairs of lanes that load the same words of 16 bytes can
# take fewer wavefronts on some GPUs than said here.

BANKS = 32
BANK_BYTES = 4
SECTOR_BYTES = 32
WAVEFRONT_BYTES = BANKS * BANK_BYTES


def wavefronts(start: Array, width: int, warps: Array, lanes: Array, alone: bool = False) -> tuple[Array, Array]:
    """The cost of accesses to shared memory: for each warp, its wavefronts, and the number of wavefronts without
    conflicts. `start` is the first byte of each access, counted from a multiple of 128 bytes. Each access is `width`
    bytes long and aligned. With `alone`, lanes that access the same word are served one after the other, as for atomic
    operations."""
    together, banks = min(LANES, WAVEFRONT_BYTES // width), max(1, width // BANK_BYTES)
    phases, places = LANES // together, BANKS // banks
    count = (int(warps.max(initial=-1)) + 1) * phases
    # Each access takes as many banks from a multiple of that on: two meet in all of them or in none.
    rows = _rows(start // (banks * BANK_BYTES), warps * phases + lanes // together, count)
    wanted = rows >= 0 if alone else _distinct(rows)
    taken = (np.arange(count)[:, None] * places + rows % places)[wanted]
    by_phase = np.bincount(taken, minlength=count * places).reshape(-1, phases, places).max(axis=-1)
    counts = by_phase.sum(axis=-1)
    asking = counts > 0
    return counts[asking], np.count_nonzero(by_phase[asking], axis=-1)


def _rows(numbers: Array, groups: Array, count: int) -> Array:
    """Numbers as sorted rows of `count` groups, with -1 in front of those of groups that have fewer."""
    order = np.lexsort((numbers, groups))
    sizes = np.bincount(groups, minlength=count)
    width, ends = int(sizes.max(initial=0)), np.cumsum(sizes)
    rows = np.full((count, width), -1, np.int64)
    of = groups[order]
    rows[of, np.arange(order.size) - ends[of] + width] = numbers[order]
    return rows


def _distinct(rows: Array) -> Array:
    """Which numbers of sorted rows are there for the first time; -1 stands for none."""
    new = rows >= 0
    new[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    return new


def sectors(start: Array, width: Array, warps: Array) -> tuple[Array, Array]:
    """The cost of accesses to global memory: for each warp with accesses, its sectors, and the smallest number of
    sectors that could hold its bytes. Each access is aligned to its width, and so lies in one sector."""
    step = 2 * SECTOR_BYTES  # more than any width
    rows = _rows(start * step + width, warps, int(warps.max(initial=-1)) + 1)
    counts = np.count_nonzero(_distinct(rows // (step * SECTOR_BYTES)), axis=1)
    wanted = np.where(_distinct(rows), rows % step, 0).sum(axis=1)
    asking = counts > 0
    return counts[asking], -(-wanted[asking] // SECTOR_BYTES)


OPAQUE = "the ISA leaves open which lane accesses what"


PATTERNS = 512
"""Patterns of addresses of which the cost is kept."""


@dataclass
class _Cost:
    """What the requests of one instruction to one space took: how many, wavefronts or sectors, fewest, most of one."""

    requests: int = 0
    units: int = 0
    ideal: int = 0
    worst: int = 0

    @staticmethod
    def of(units: Array, ideal: Array) -> _Cost:
        """That of requests: of each, the wavefronts or sectors, and the fewest."""
        return _Cost(units.size, int(units.sum()), int(ideal.sum()), int(units.max(initial=0)))

    def add(self, other: _Cost) -> None:
        self.requests += other.requests
        self.units += other.units
        self.ideal += other.ideal
        self.worst = max(self.worst, other.worst)


Costs: TypeAlias = "dict[tuple[int, str], _Cost]"
"""By the instruction's place in the code, and the kind of access."""


class Counts(NamedTuple):
    """The counts of some CTAs: warps and lanes that executed or met at each instruction, and costs of accesses."""

    grid: Dim3
    block: Dim3
    warps: list[int]
    lanes: list[int]
    met: list[list[int]]
    shared: Costs
    outside: Costs


class Reporter(Observer):
    """Counts what a launch executes and accesses; `report` returns the counts."""

    merges = True

    def __init__(self) -> None:
        self._kernel: DecodedKernel | None = None
        self._code: tuple[Decoded, ...] = ()
        self._pending: list[MemoryAccess] = []
        self._shared: Costs = {}
        self._global: Costs = {}
        self._patterns: dict[tuple[int, bool, int, int, bytes, bytes], _Cost] = {}
        self._counted: tuple[Selection | None, int] = (None, 0)

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        """Counts go on from one batch of CTAs to the next."""
        self._settle()
        self._know(kernel, state.geometry.grid, state.geometry.block)
        self.state = state

    def _know(self, kernel: DecodedKernel, grid: Dim3, block: Dim3) -> None:
        if self._kernel is None:
            size = len(kernel.code)
            self._warps, self._lanes, self._met = [0] * size, [0] * size, [[0, 0] for _ in range(size)]
        self._kernel, self._grid, self._block, self._code = kernel, grid, block, kernel.code

    def take(self) -> Counts:
        """What was counted since the last time, to be added in another process."""
        self._settle()
        counts = Counts(self._grid, self._block, self._warps, self._lanes, self._met, self._shared, self._global)
        self._kernel, self._shared, self._global = None, {}, {}
        return counts

    def add(self, kernel: DecodedKernel, taken: object) -> None:
        if not isinstance(taken, Counts):
            raise TypeError(f"expected counts of another reporter, got {taken!r}")
        self._know(kernel, taken.grid, taken.block)
        for pc, (warps, lanes, met) in enumerate(zip(taken.warps, taken.lanes, taken.met, strict=True)):
            self._warps[pc] += warps
            self._lanes[pc] += lanes
            self._met[pc] = [a + b for a, b in zip(self._met[pc], met, strict=True)]
        for costs, others in ((self._shared, taken.shared), (self._global, taken.outside)):
            for key, cost in others.items():
                costs.setdefault(key, _Cost()).add(cost)

    # What is executed

    def issue(self, pc: int) -> Look:
        """Counts warps, whether or not their guard holds."""

        counts, count = self._warps, self._count

        def look(sel: Selection) -> None:
            counts[pc] += count(sel)

        return look

    def watch(self, pc: int) -> Look:
        """Counts lanes whose guard holds. The accesses of the previous instruction are complete now."""

        counts = self._lanes

        def look(sel: Selection) -> None:
            counts[pc] += sel.count
            if self._pending:
                self._settle()

        return look

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        """Counts lanes that waited for others. They were counted at their arrival, and execute together now."""
        met = self._met[pc]
        met[0] += self._count(threads)
        met[1] += threads.count

    def _count(self, sel: Selection) -> int:
        if sel.mask is None:
            return self.state.warps
        if self._counted[0] is not sel:  # One selection goes through many instructions.
            self._counted = (sel, int(np.count_nonzero(warps_with(sel.mask))))
        return self._counted[1]

    # What is accessed

    def access(self, access: MemoryAccess) -> None:
        """Collects the accesses of one instruction, which may come in several parts."""
        self._pending.append(access)

    def _settle(self) -> None:
        """Adds the costs of the last instruction's accesses."""
        accesses, self._pending = self._pending, []
        if len(accesses) == 1:
            if accesses[0].threads.size and self._code[accesses[0].pc].row.root != "wmma":
                self._request(accesses[0].kind, accesses)
            return
        for kind in dict.fromkeys(access.kind for access in accesses):
            some = [access for access in accesses if access.kind == kind and access.threads.size]
            if some and self._code[some[0].pc].row.root != "wmma":
                self._request(kind, some)

    def _request(self, kind: str, accesses: list[MemoryAccess]) -> None:
        memory, pc = self.state.memory, accesses[0].pc
        for a in accesses:
            if a.buffer is memory.shared.buffer:
                cost = self._once(a, kind, WAVEFRONT_BYTES, self._wavefronts)
                self._shared.setdefault((pc, kind), _Cost()).add(cost)
        outside = [a for a in accesses if memory.is_global(a.buffer)]
        if not outside or self._code[pc].traits.space == "const":
            return
        if len(outside) == 1:
            cost = self._once(outside[0], kind, SECTOR_BYTES, lambda _: self._sectors(outside))
        else:
            cost = self._sectors(outside)
        self._global.setdefault((pc, kind), _Cost()).add(cost)

    def _once(self, access: MemoryAccess, kind: str, unit: int, cost: Callable[[MemoryAccess], _Cost]) -> _Cost:
        """The cost of accesses. Patterns that differ by a multiple of `unit` bytes only are computed once."""
        relative, threads = access.start - int(access.start[0]) // unit * unit, access.threads
        if access.buffer.size <= 1 << 31:
            relative, threads = relative.astype(np.int32), threads.astype(np.int32)
        key = (unit, kind == "atomic", access.width, self.state.warps, relative.tobytes(), threads.tobytes())
        cost_ = self._patterns.get(key)
        if cost_ is None:
            if len(self._patterns) >= PATTERNS:
                self._patterns.clear()
            cost_ = self._patterns[key] = cost(access)
        return cost_

    def _wavefronts(self, a: MemoryAccess) -> _Cost:
        lanes, warps = np.divmod(a.threads, self.state.warps)
        return _Cost.of(*wavefronts(a.start, a.width, warps, lanes, alone=a.kind == "atomic"))

    def _sectors(self, accesses: list[MemoryAccess]) -> _Cost:
        """The sectors of accesses to several buffers, whose addresses are disjoint."""
        buffers = list({id(a.buffer): a.buffer for a in accesses}.values())
        start = np.concatenate([a.start + (buffers.index(a.buffer) << SPAN_BITS) for a in accesses])
        widths = np.concatenate([np.full(a.start.size, a.width) for a in accesses])
        warps = np.concatenate([a.threads for a in accesses]) % self.state.warps
        return _Cost.of(*sectors(start, widths, warps))

    # What was found

    def report(self) -> LaunchReport:
        """The report of the launch. Raises ValueError if no launch was observed."""
        if self._kernel is None:
            raise ValueError("no launch was observed")
        self._settle()
        done = tuple(self._executed(self._kernel))
        shared, outside = (self._costs(self._kernel, costs) for costs in (self._shared, self._global))
        return LaunchReport(
            self._kernel.name,
            self._grid,
            self._block,
            done,
            tuple(SharedAccess(*at, c.requests, c.units, c.ideal, c.worst, source) for at, c, source in shared),
            tuple(GlobalAccess(*at, c.requests, c.units, c.ideal, source) for at, c, source in outside),
            _products(done),
            tuple(f"line {d.line}: {d.opcode}: {OPAQUE}" for d in done if traits(d.opcode).name in _OPAQUE),
        )

    def _costs(self, kernel: DecodedKernel, costs: Costs) -> Iterator[tuple[tuple[int, int, str, str], _Cost, str]]:
        """Costs in order, each with its line, column, opcode and kind before and its place in the source behind it."""
        for (pc, kind), cost in sorted(costs.items(), key=lambda item: item[0]):
            source = kernel.code[pc].source
            yield (source.line, source.column, source.opcode, kind), cost, kernel.source_of(pc)

    def _executed(self, kernel: DecodedKernel) -> Iterator[Executed]:
        # The last instruction is the `ret` that every kernel gets, written or not.
        for pc, decoded in enumerate(kernel.code[:-1]):
            warps, lanes = self._met[pc] if self._met[pc][0] else (self._warps[pc], self._lanes[pc])
            source = decoded.source
            if warps and source.opcode != RETURN:
                yield Executed(source.line, source.column, source.opcode, warps, lanes, kernel.source_of(pc))


_OPAQUE = ("wmma.load", "wmma.store")


def _products(done: Sequence[Executed]) -> tuple[MatrixProducts, ...]:
    """The matrix products among the instructions, by opcode."""
    products: dict[str, MatrixProducts] = {}
    for item in done:
        row = traits(item.opcode).row
        if isinstance(row, Mma | WmmaMma):
            before = products[item.opcode].warps if item.opcode in products else 0
            products[item.opcode] = MatrixProducts(item.opcode, Problem(*row.shape), row.products, before + item.warps)
    return tuple(products.values())
