"""The schedule of one matrix product: every choice the lowering makes, made once.

A schedule is chosen by the pass `warp-schedule`, stays visible in the IR as `#warp.schedule<...>`, and
is written the same way on the command line: `cta=128,256,64 warp=64,64 stages=3`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from .isa.mma import Shape
from .isa.types import ELEMENT_TYPES

SWIZZLES = (16, 32, 64, 128)

PACKS = ("none", "a", "b", "ab")

MOST_PARTS = 64
"""Parts of K: the last CTA of a tile reads what all have, alone."""

SYNCS = ("barrier", "mbarrier")

FP8_AS = ("none", "f16")

RARE = {"rare": True}
"""Marks a field that is printed only where it differs from its default."""

SHARED_ALIGNMENT = 1024
"""Bytes after which every swizzle repeats; tiles in shared memory start at multiples of it."""


class ScheduleError(ValueError):
    """A schedule that contradicts itself or does not fit the target."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How one product is cut up.

    `cta` is (M, N, K) of the tile a CTA computes per step; `warp` is (M, N) of a warp's part of it;
    `mma` the instruction; `stages` the shared-memory buffers in flight (1: no overlap); `swizzle` the
    widest line, in bytes, within which 16-byte chunks of shared memory are permuted (16: none);
    `group` how many rows of CTA tiles are walked together, for reuse in L2; `accumulate` the element
    type of the accumulators; `pack` which operands are first copied to whole tiles of aligned rows in scratch memory
    ("none", "a", "b" or "ab"); `sliced_k` how many groups of warps share the steps of a K tile, their sums added up in
    shared memory at the end; `split_k` into how many parts K is cut for CTAs of their own, whose sums the last of them
    adds up; `sync` how warps wait for copies and for each other's reads: all at a "barrier" for each
    K tile, or each at a "mbarrier" for each stage; `prefetch` how many K tiles copies run ahead (0: one less than there
    are stages); `unroll` how many K tiles stand in one turn of the K loop, a multiple of the stages, so that their
    addresses are known while compiling (0: one, of any stage); `ctas` how many CTAs share all tiles, each starting the
    copies of its next tile under the last steps of the one before (0: one CTA for each tile);
    `staging` how many rows of a warp tile at a time change lanes in shared memory on their way to D, so that a warp
    stores whole lines of it (0: each lane stores what it holds); `fp8_as` the type that operands of 8-bit floats become
    in registers, each step of the instruction then being two of half its depth ("none": as they are, or "f16").

    Raises:
        ScheduleError: if tiles do not divide one another, or a number is out of range.
    """

    cta: tuple[int, int, int]
    warp: tuple[int, int]
    mma: Shape
    stages: int
    swizzle: int = 128
    group: int = 8
    accumulate: str = "f32"
    pack: str = field(default="none", metadata=RARE)
    sliced_k: int = field(default=1, metadata=RARE)
    split_k: int = field(default=1, metadata=RARE)
    sync: str = field(default="barrier", metadata=RARE)
    prefetch: int = field(default=0, metadata=RARE)
    unroll: int = field(default=0, metadata=RARE)
    ctas: int = field(default=0, metadata=RARE)
    staging: int = field(default=0, metadata=RARE)
    fp8_as: str = field(default="none", metadata=RARE)

    def __post_init__(self) -> None:
        if min(*self.cta, *self.warp) <= 0:
            raise ScheduleError(f"tile sizes must be positive, got cta = {self.cta}, warp = {self.warp}")
        if min(self.mma) <= 0:
            raise ScheduleError(f"the sizes of an instruction must be positive, got {self.mma}")
        for axis, tile, step in zip("MN", self.cta, self.warp, strict=False):
            if tile % step:
                raise ScheduleError(f"the warp tile must divide the CTA tile, got {step} against {tile} along {axis}")
        for axis, tile, step in zip("MNK", (*self.warp, self.cta[2]), self.mma, strict=True):
            if tile % step:
                raise ScheduleError(
                    f"tiles must be multiples of the instruction {self.mma}, got {tile} along {axis} "
                    f"(the next multiple is {-(-tile // step) * step})"
                )
        if self.threads > 1024:
            raise ScheduleError(
                f"a CTA has at most 1024 threads, {self.warps} warps take {self.threads}; use larger warp tiles"
            )
        if self.stages < 1:
            raise ScheduleError(f"at least one stage is needed, got {self.stages}")
        if self.swizzle not in SWIZZLES:
            raise ScheduleError(f"swizzle must be one of {SWIZZLES} bytes, got {self.swizzle}")
        if self.group < 1:
            raise ScheduleError(f"group must be at least 1, got {self.group}")
        if self.sliced_k < 1 or self.cta[2] % (self.sliced_k * self.mma.k):
            raise ScheduleError(
                f"each slice needs as many steps of {self.mma}, got {self.sliced_k} slices of a K tile of {self.cta[2]}"
            )
        if self._undivided:
            raise ScheduleError(
                f"{self.sliced_k} slices divide the base tiles of a warp tile down, or across if it is one high; "
                f"got {self.warp[0]}x{self.warp[1]}"
            )
        if not 1 <= self.split_k <= MOST_PARTS:
            raise ScheduleError(f"split_k must be 1 to {MOST_PARTS}, got {self.split_k}")
        if self.pack not in PACKS:
            raise ScheduleError(f"pack must be one of {', '.join(PACKS)}, got {self.pack}")
        if self.staging < 0 or self.staging & self.staging - 1 or (self.staging and self.warp[0] % self.staging):
            raise ScheduleError(
                f"staging must be 0 or a power of two that divides a warp tile's {self.warp[0]} rows, "
                f"got {self.staging}"
            )
        if self.fp8_as not in FP8_AS:
            raise ScheduleError(f"fp8_as must be one of {', '.join(FP8_AS)}, got {self.fp8_as}")
        self._check_loop()

    def _check_loop(self) -> None:
        if self.sync not in SYNCS:
            raise ScheduleError(f"sync must be one of {', '.join(SYNCS)}, got {self.sync}")
        if self.sync == "mbarrier" and self.stages < 3:
            raise ScheduleError(f"sync = mbarrier takes at least 3 stages, got {self.stages}")
        if not 0 <= self.prefetch < max(self.stages, 2):
            most = self.stages - 1
            raise ScheduleError(f"copies run at most {most} of {self.stages} stages ahead, got {self.prefetch}")
        if self.unroll < 0 or self.unroll % self.stages:
            raise ScheduleError(f"unroll must be a multiple of the {self.stages} stages, got {self.unroll}")
        if self.ctas < 0 or (self.ctas and self.sliced_k > 1):
            raise ScheduleError(
                f"ctas must be 0, or more with a single slice, got {self.ctas} and {self.sliced_k} slices"
            )

    @property
    def tiles_ahead(self) -> int:
        """How many K tiles copies run ahead."""
        return self.prefetch or self.stages - 1

    @property
    def _undivided(self) -> bool:
        down, across = (size // step for size, step in zip(self.warp, self.mma, strict=False))
        return bool(across % self.sliced_k if down == 1 else down % self.sliced_k)

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.sliced_k * (self.cta[0] // self.warp[0]) * (self.cta[1] // self.warp[1])

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def slice_bytes(self) -> int:
        """Shared memory in which slices meet to add up their sums."""
        return (self.sliced_k - 1) * self.cta[0] * self.cta[1] * ELEMENT_TYPES[self.accumulate].bits // 8

    def __str__(self) -> str:
        shown = (f for f in fields(self) if not f.metadata or getattr(self, f.name) != f.default)
        return ", ".join(f"{f.name} = {_show(getattr(self, f.name))}" for f in shown)

    def options(self) -> dict[str, str]:
        """Every field as the option that asks for it."""
        return {f.name: _show(getattr(self, f.name)) for f in fields(self)}

    @staticmethod
    def of(options: Mapping[str, object]) -> Schedule:
        """The schedule with these fields, given as text, numbers or sequences; rare ones may be left out.

        Raises:
            ScheduleError: naming the option that is missing, unknown, or cannot be read.
        """
        if missing := [name for name in ALWAYS if name not in options]:
            raise ScheduleError(f"the schedule lacks {', '.join(missing)}")
        return Schedule(**parse_options(options))  # pyright: ignore[reportArgumentType]

    @staticmethod
    def parse(text: str) -> Schedule:
        """Reads what `str` prints.

        Raises:
            ScheduleError: as `of`, for text that is no schedule.
        """
        parts = (part.partition(" = ") for part in text.split(", "))
        try:
            return Schedule.of({name: value for name, _, value in parts})
        except ScheduleError as error:
            raise ScheduleError(f"'{text}' is no schedule: {error}") from None

    def with_options(self, options: Mapping[str, object]) -> Schedule:
        """This schedule with some fields replaced, given as text, numbers or sequences.

        Raises:
            ScheduleError: naming the option that is unknown or cannot be read.
        """
        return replace(self, **parse_options(options))


NAMES = tuple(f.name for f in fields(Schedule))

ALWAYS = tuple(f.name for f in fields(Schedule) if not f.metadata)
"""The fields that the text of a schedule always has."""


def _show(value: object) -> str:
    return "x".join(map(str, value)) if type(value) is tuple else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def parse_options(options: Mapping[str, object]) -> dict[str, object]:
    """Reads schedule fields from text, numbers or sequences.

    Raises:
        ScheduleError: naming the option that is unknown or cannot be read.
    """
    return {name: _read(name, value) for name, value in options.items()}


def _read(name: str, value: object) -> object:
    if name in ("cta", "warp"):
        return _sizes(name, value, 3 if name == "cta" else 2)
    if name == "mma":
        try:
            return value if isinstance(value, Shape) else Shape.parse(str(value))
        except ValueError as e:
            raise ScheduleError(f"schedule option mma: {e}") from None
    if name in ("accumulate", "pack", "sync", "fp8_as"):
        return str(value)
    if name in NAMES:
        return _sizes(name, value, 1)[0]
    raise ScheduleError(f"unknown schedule option '{name}'; known: {', '.join(NAMES)}")


def _sizes(name: str, value: object, count: int) -> tuple[int, ...]:
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
        raise ScheduleError(f"schedule option {name}: expected {expected}, got '{value}'")
    return numbers
