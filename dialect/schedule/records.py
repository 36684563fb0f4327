"""The records of a schedule: arithmetic, tiles, shared memory, operands, K loop, grid, epilogue; each checks itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, get_args, get_type_hints

from ..isa.form import Shape
from ..isa.wgmma import WARPS as WARPGROUP
from ..isa.wgmma import M as WARPGROUP_ROWS

# What the fields of all records of a schedule share: where they stand in its text, how they are read and printed.

T = TypeVar("T")


class ScheduleError(ValueError):
    """A schedule that contradicts itself or does not fit the target."""


def always(at: int, meaning: str, default: Any = MISSING) -> Any:
    """A field of a record that the text of a schedule always has, in the place `at`."""
    return field(default=default, metadata={"at": at, "meaning": meaning})


def rare(at: int, meaning: str, default: T, one_of: Sequence[T] = ()) -> T:
    """A field that is printed only where it differs from its default; with `one_of`, it has one of these values."""
    return field(default=default, metadata={"at": at, "meaning": meaning, "rare": True, "one_of": one_of})


class ScheduleRecord:
    """A part of a schedule. Subclasses are frozen dataclasses whose fields are made by `always` and `rare`.

    Raises:
        ScheduleError: when made of values that contradict each other.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for one in fields(self):  # pyright: ignore[reportArgumentType]
            known, value = one.metadata.get("one_of"), getattr(self, one.name)
            if known and value not in known:
                raise ScheduleError(f"{one.name} must be one of {', '.join(map(str, known))}, got {value}")
        self.check()

    def check(self) -> None:
        """Refuses what contradicts itself within the record."""


@dataclass(frozen=True, slots=True)
class ScheduleField:
    """One field: its name, the record that holds it, its type, its place in the text and what it means."""

    name: str
    record: str
    kind: Any
    at: int
    meaning: str
    default: object
    rare: bool
    one_of: tuple[object, ...]

    def read(self, value: object) -> object:
        """The value that text, numbers or a sequence stand for.

        Raises:
            ScheduleError: naming the field, if they stand for none.
        """
        if self.kind is str:
            return self._word(value)
        if self.kind is Shape:
            return self._shape(value)
        numbers = self._numbers(value, self.count)
        return numbers[0] if self.kind is int else numbers

    @property
    def count(self) -> int:
        """How many numbers, or words, it consists of."""
        return len(get_args(self.kind)) or 1

    def _word(self, value: object) -> str:
        word = str(value)
        if self.one_of and word not in self.one_of:
            known = ", ".join(map(str, self.one_of))
            raise ScheduleError(f"{self.name} must be one of {known}, got {word or 'nothing'}")
        if not word.isidentifier():
            raise ScheduleError(f"schedule option {self.name}: expected a word, got '{word}'")
        return word

    def _shape(self, value: object) -> Shape:
        try:
            return value if isinstance(value, Shape) else Shape.parse(str(value))
        except ValueError as error:
            raise ScheduleError(f"schedule option {self.name}: {error}") from None

    def _numbers(self, value: object, count: int) -> tuple[int, ...]:
        parts: Sequence[object]
        if isinstance(value, str):
            parts = value.replace("x", ",").split(",")
        else:
            parts = list(value) if isinstance(value, (tuple, list)) else [value]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        try:
            numbers = tuple(int(str(part)) for part in parts)
        except ValueError:
            numbers = ()
        if len(numbers) != count:
            expected = "one number" if count == 1 else f"{count} numbers"
            raise ScheduleError(f"schedule option {self.name}: expected {expected}, got '{value}'")
        return numbers


def fields_of(name: str, record: type[ScheduleRecord]) -> Iterator[ScheduleField]:
    """The fields of a record that a schedule holds under a name."""
    kinds = get_type_hints(record)
    for one in fields(record):  # pyright: ignore[reportArgumentType]
        said = one.metadata
        default = None if one.default is MISSING else one.default
        known = tuple(said.get("one_of", ()))
        yield ScheduleField(
            one.name, name, kinds[one.name], said["at"], said["meaning"], default, said.get("rare", False), known
        )


def text_of(value: object) -> str:
    """A field's value as text: `128x256x64`."""
    return "x".join(map(str, value)) if type(value) is tuple else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


# What is computed in.


@dataclass(frozen=True, slots=True)
class ArithmeticSchedule(ScheduleRecord):
    """The arithmetic of the product."""

    accumulate: str = always(6, "the element type of the accumulators", "f32")
    promote: str = rare(
        21,
        "where warpgroups add products of 8-bit floats. `f32`, which is chosen unless sums may be approximate: the "
        "tensor cores add those of one K tile, and f32 registers add K tiles. `none`: the tensor cores add all, "
        "keeping 13 bits of fraction relative to the largest term",
        "none",
        ("none", "f32"),
    )


# The way from accumulators to D.


@dataclass(frozen=True, slots=True)
class EpilogueSchedule(ScheduleRecord):
    """The epilogue."""

    staging: int = rare(
        14,
        "how many rows of a warp tile pass through shared memory at a time before they are stored, so that a "
        "warp stores whole cache lines (0: each lane stores the elements that it holds)",
        0,
    )
    add_c: str = rare(
        18,
        "when C is added. `first`: the accumulators start with C. `last`: C is added just before the store. `auto`: "
        "`last` if rows are staged and there are enough registers, otherwise `first`",
        "auto",
        ("auto", "first", "last"),
    )


# Which CTA computes which tiles, and when.

MOST_PARTS = 64
"""Parts of K: the last CTA of a tile reads what all have, alone."""

MOST_GRID = 2**31 - 1
"""CTAs of a launch along x, at most. Source: CUDA programming guide, technical specifications."""

MOST_CTAS = 8
"""CTAs of a cluster that every GPU with clusters can hold. Source: CUDA programming guide, Thread Block Clusters."""


@dataclass(frozen=True, slots=True)
class GridSchedule(ScheduleRecord):
    """The CTAs of a launch."""

    group: int = always(
        5,
        "how many rows of CTA tiles form a group. CTAs run through a group column by column, which reuses "
        "operands in L2; a number above the rows that there are makes all of them one group",
        8,
    )
    split_k: int = rare(
        9, "split-K: how many CTAs share K of each tile; the last one to finish adds their partial sums", 1
    )
    ctas: int = rare(
        13,
        "how many persistent CTAs there are, at most one for each tile. Each computes one tile after another, and "
        "starts to copy the next tile during the last steps of the current one (0: one CTA for each tile)",
        0,
    )
    edges: str = rare(
        17,
        "what happens to CTA tiles that cross the edge of D. `inside`: they are moved back inside D where possible, so "
        "that accesses need no bounds. `predicated`: they stay where they are, and accesses are predicated",
        "inside",
        ("inside", "predicated"),
    )
    cluster: tuple[int, int] = rare(
        22,
        "the shape of a cluster, M x N CTAs, which share operand tiles by multicast: CTAs along M share a tile "
        "of B, and CTAs along N a tile of A (only with `wgmma`)",
        (1, 1),
    )

    def check(self) -> None:
        if self.group < 1:
            raise ScheduleError(f"group must be at least 1, got {self.group}")
        for name, value in (("group", self.group), ("ctas", self.ctas)):
            if value > MOST_GRID:
                raise ScheduleError(f"{name} must be at most {MOST_GRID}, the CTAs that a launch can have, got {value}")
        if not 1 <= self.split_k <= MOST_PARTS:
            raise ScheduleError(f"split_k must be 1 to {MOST_PARTS}, got {self.split_k}")
        down, across = self.cluster
        if min(down, across) < 1 or down * across > MOST_CTAS or down & down - 1 or across & across - 1:
            raise ScheduleError(f"cluster must be powers of two, at most {MOST_CTAS} CTAs, got {down}x{across}")
        if self.ctas % (down * across):
            raise ScheduleError(f"ctas must be whole clusters of {down}x{across}, got {self.ctas}")


# The loop over K tiles: how copies to shared memory run ahead of what reads them.

LEAST_RING = 3
"""Stages that a loop takes whose warps wait at mbarriers."""


@dataclass(frozen=True, slots=True)
class LoopSchedule(ScheduleRecord):
    """The pipeline of the K loop."""

    stages: int = always(3, "how many buffers the ring in shared memory has (1: copies do not overlap products)")
    sync: str = rare(
        10,
        "how warps wait for copies, and for other warps that still read a stage. `barrier`: all warps wait at a "
        "barrier of the CTA in each K tile. `mbarrier`: each stage has an mbarrier, at which a warp waits when "
        "it needs the stage",
        "barrier",
        ("barrier", "mbarrier"),
    )
    prefetch: int = rare(
        11, "the prefetch distance: how many K tiles ahead of the products copies run (0: one less than `stages`)", 0
    )
    unroll: int = rare(
        12,
        "how many K tiles one iteration of the loop multiplies, a multiple of `stages`, so that addresses of "
        "stages are constants (0: one K tile, whose stage is computed)",
        0,
    )

    consumers: str = rare(
        20,
        "how the consumer warpgroups share the tensor cores. `cooperative`: all of them multiply each K tile. "
        "`pingpong`: they take turns, so that one multiplies while another runs its epilogue",
        "cooperative",
        ("cooperative", "pingpong"),
    )

    def check(self) -> None:
        if self.stages < 1:
            raise ScheduleError(f"stages must be at least 1, got {self.stages}")
        if self.sync == "mbarrier" and self.stages < LEAST_RING:
            raise ScheduleError(f"sync = mbarrier takes at least {LEAST_RING} stages, got {self.stages}")
        if not 0 <= self.prefetch < max(self.stages, 2):
            most = max(self.stages, 2) - 1
            raise ScheduleError(f"prefetch must be 0 to {most} with {self.stages} stages, got {self.prefetch}")
        if self.unroll < 0 or self.unroll % self.stages:
            raise ScheduleError(f"unroll must be a multiple of the {self.stages} stages, got {self.unroll}")

    @property
    def tiles_ahead(self) -> int:
        """How many K tiles copies run ahead."""
        return self.prefetch or self.stages - 1


# What becomes of A and B on their way from memory to the instruction.


@dataclass(frozen=True, slots=True)
class OperandSchedule(ScheduleRecord):
    """The operands A and B."""

    pack: str = rare(
        7,
        "which operands a separate kernel first copies to scratch memory, into whole tiles of aligned rows",
        "none",
        ("none", "a", "b", "ab"),
    )
    fp8_as: str = rare(
        15,
        "the type to which 8-bit floats are converted in registers before they are multiplied; chosen where their own "
        "instruction is slower or its sums are short (`none`: they are not converted)",
        "none",
        ("none", "f16"),
    )
    access: int = rare(
        19,
        "the most bytes that a thread copies to shared memory at a time; the alignment of rows may allow fewer",
        16,
        (16, 8, 4),
    )
    transpose: str = rare(
        23,
        "which operands a separate kernel first transposes, so that elements along K are contiguous (`wgmma` needs "
        "this, except for 16-bit elements)",
        "none",
        ("none", "a", "b", "ab"),
    )
    padded: str = rare(
        24,
        "`d`: D is computed in scratch memory, with rows that are multiples of 16 bytes, and another kernel copies it",
        "none",
        ("none", "d"),
    )


# How tiles lie in shared memory.

SWIZZLES = (16, 32, 64, 128)

SHARED_ALIGNMENT = 1024
"""Bytes after which every swizzle repeats; tiles in shared memory start at multiples of it."""


@dataclass(frozen=True, slots=True)
class SharedSchedule(ScheduleRecord):
    """The layout of tiles in shared memory."""

    swizzle: int = always(
        4, "the span in bytes within which the swizzle permutes chunks of 16 bytes of a row (16: no swizzle)", 128
    )

    def check(self) -> None:
        if self.swizzle not in SWIZZLES:
            raise ScheduleError(f"swizzle must be one of {SWIZZLES} bytes, got {self.swizzle}")


# How a product is cut into tiles: for CTAs, for their warps, for instructions.

MOST_THREADS = 1024
"""Threads of a CTA, at most."""


@dataclass(frozen=True, slots=True)
class TileSchedule(ScheduleRecord):
    """The tiles of a product. Each tile size is a multiple of the next smaller one."""

    cta: tuple[int, int, int] = always(
        0, "the tile of a CTA: M x N of D, and the part of K that it multiplies in each step of the K loop"
    )
    warp: tuple[int, int] = always(1, "the part of the CTA tile, M x N, that a warp or a warpgroup computes")
    mma: Shape = always(2, "the shape of the matrix instruction; M = 64 means `wgmma`, which warpgroups execute")
    sliced_k: int = rare(
        8, "sliced-K: how many groups of warps share each K tile; the CTA adds their sums in shared memory", 1
    )
    order: str = rare(
        16,
        "the order of the instructions of a warp tile. `rows`: row by row, each from left to right. "
        "`serpentine`: every second row from right to left, so that its first instruction reads the same B as "
        "the one before",
        "serpentine",
        ("serpentine", "rows"),
    )
    in_registers: str = rare(
        25,
        "which operand a warpgroup loads to registers, to transpose or convert it there. `b`: the instruction computes "
        "D^T = B^T A^T, with B^T as its first operand, and `warp` is the part of D that a warpgroup computes, N x 64",
        "none",
        ("none", "a", "b"),
    )

    def check(self) -> None:
        if min(*self.cta, *self.warp) <= 0:
            raise ScheduleError(f"tile sizes must be positive, got {self._sizes}")
        if min(self.mma) <= 0:
            raise ScheduleError(f"the sizes of an instruction must be positive, got {self.mma}")
        if self.in_registers != "none" and self.together == 1:
            raise ScheduleError(f"in_registers = {self.in_registers} is for warpgroups, got mma = {self.mma}")
        self._check_multiples()
        self._check_slices()
        if self.threads > MOST_THREADS:
            raise ScheduleError(
                f"a CTA has at most {MOST_THREADS} threads, {self.warps} warps take {self.threads}; enlarge warp or "
                f"reduce cta: {self._sizes}"
            )

    def _check_multiples(self) -> None:
        for axis, tile, step in zip("MN", self.cta, self.warp, strict=False):
            if tile % step:
                raise ScheduleError(f"warp must divide cta, got {step} against {tile} along {axis}: {self._sizes}")
        steps = (*self.covered, self.mma.k)
        for axis, tile, step in zip("MNK", (*self.warp, self.cta[2]), steps, strict=True):
            if tile % step:
                transposed = " of the transpose" if self.exchanged else ""
                raise ScheduleError(
                    f"cta and warp must be multiples of mma = {self.mma}{transposed}, got {tile} along {axis} "
                    f"(the next multiple is {-(-tile // step) * step}): {self._sizes}"
                )

    def _check_slices(self) -> None:
        if self.sliced_k < 1 or self.cta[2] % (self.sliced_k * self.mma.k):
            raise ScheduleError(
                f"sliced_k must divide the {self.cta[2] // self.mma.k} steps of {self.mma} in a K tile of "
                f"{self.cta[2]}, got {self._sizes}"
            )
        down, across = (size // step for size, step in zip(self.warp, self.covered, strict=True))
        base = across if down == 1 else down
        if base % self.sliced_k and (min(down, across) > 1 or self.sliced_k % base):
            raise ScheduleError(
                f"sliced_k: {self.sliced_k} slices divide the base tiles of a warp tile down, or across if it is "
                f"one high, or are a multiple of a single row or column of them; got {self._sizes}"
            )

    @property
    def _sizes(self) -> str:
        """The fields that say how large tiles are, for errors."""
        sliced = "" if self.sliced_k == 1 else f", sliced_k = {self.sliced_k}"
        return f"cta = {text_of(self.cta)}, warp = {text_of(self.warp)}{sliced}"

    @property
    def exchanged(self) -> bool:
        """Whether the transposes are multiplied, B^T by A^T."""
        return self.in_registers == "b"

    @property
    def covered(self) -> tuple[int, int]:
        """The part of D, M x N, that an instruction computes."""
        return (self.mma.n, self.mma.m) if self.exchanged else (self.mma.m, self.mma.n)

    @property
    def together(self) -> int:
        """Warps that compute a warp tile: four where the instruction is one of warpgroups."""
        return WARPGROUP if self.mma.m == WARPGROUP_ROWS else 1

    @property
    def warps(self) -> int:
        """Warps of a CTA that multiply."""
        return self.together * self.sliced_k * (self.cta[0] // self.warp[0]) * (self.cta[1] // self.warp[1])

    @property
    def threads(self) -> int:
        """Threads of a CTA that multiply."""
        return 32 * self.warps
