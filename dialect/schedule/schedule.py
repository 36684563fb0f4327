"""The schedule of one matrix product: every choice the lowering makes, made once.

A schedule is chosen by the pass `warp-schedule`, stays visible in the IR as `#warp.schedule<...>`, and is written the
same way on the command line: `cta=128,256,64 warp=64,64 stages=3`. Each choice is a field of `Schedule`, declared once:
how it is read, printed, checked and explained follows from its declaration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, cast, get_args, get_type_hints

from ..isa import wgmma
from ..isa.form import Shape

SWIZZLES = (16, 32, 64, 128)

SHARED_ALIGNMENT = 1024
"""Bytes after which every swizzle repeats; tiles in shared memory start at multiples of it."""

MIN_RING = 3
"""Stages that a loop takes whose warps wait at mbarriers."""

MAX_PARTS, MAX_GRID, MAX_THREADS, MAX_STAGES, MAX_REGISTERS = 64, 2**31 - 1, 1024, 1024, 255
"""Parts of K: the last CTA of a tile reads what all have, alone. CTAs of a launch along x, threads of a CTA,
registers of a lane. Source: CUDA programming guide, technical specifications. Stages: more than shared memory holds."""

FEW_ROWS = 16
"""Rows of D up to which products of one A share a launch, which reads the weights of all."""

CLUSTER_PARTS, MAX_CTAS = (2, 4, 8), 8
"""Parts of K that may be a cluster; CTAs of one that every GPU with clusters can hold. Source: CUDA programming guide,
Thread Block Clusters."""


class ScheduleError(ValueError):
    """A schedule that contradicts itself or does not fit the target."""


FRAGMENTS, WARPGROUPS, ATTENTION = "products of fragments", "products of warpgroups", "attention"
"""What has a schedule: products by `mma.sync`, products by `wgmma`, and attention by either."""

PRODUCTS = (FRAGMENTS, WARPGROUPS)


@dataclass(frozen=True, kw_only=True)
class ScheduleField:
    """The declaration of a field of a schedule. `part` is the group that it belongs to, `meaning` its description.
    The text of a schedule contains the field if `always`, or if its value differs from `default`. The value is
    `one_of` several, or consists of numbers from `minimum` to `maximum`. `of` lists the kinds of kernels that have
    this choice."""

    name: str = ""
    kind: Any = None
    part: str
    meaning: str
    always: bool = False
    default: object = None
    one_of: tuple[object, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    of: tuple[str, ...] = (*PRODUCTS, ATTENTION)

    @property
    def count(self) -> int:
        """How many numbers, or words, it consists of."""
        return len(get_args(self.kind)) or 1

    def check(self, value: Any) -> None:
        """Refuses a value that is none of the field's. Raises ScheduleError saying which are."""
        if self.one_of and value not in self.one_of:
            values = ", ".join(map(str, self.one_of))
            raise ScheduleError(f"{self.name} must be one of {values}, got {text_of(value) or 'nothing'}")
        if self.minimum is None:
            return
        low, high = (value, value) if self.kind is int else (min(value), max(value))
        if low < self.minimum or (self.maximum is not None and high > self.maximum):
            limits = f"at least {self.minimum}" if self.maximum is None else f"{self.minimum} to {self.maximum}"
            several = "numbers of " * (self.kind is not int)
            raise ScheduleError(f"{self.name} must be {several}{limits}, got {text_of(value)}")

    def read(self, value: object) -> object:
        """The value that text, numbers or a sequence stand for. Raises ScheduleError naming the field, if they stand
        for none."""
        if self.kind is str:
            self.check(word := str(value))
            if not word.isidentifier():
                raise ScheduleError(f"schedule option {self.name}: expected a word, got '{word}'")
            return word
        if self.kind is Shape:
            try:
                return value if isinstance(value, Shape) else Shape.parse(str(value))
            except ValueError as error:
                raise ScheduleError(f"schedule option {self.name}: {error}") from None
        numbers = self._numbers(value)
        return numbers[0] if self.kind is int else numbers

    def _numbers(self, value: object) -> tuple[int, ...]:
        try:
            numbers = tuple(map(int, text_of(value).replace("x", ",").split(",")))
        except ValueError:
            numbers = ()
        if len(numbers) != self.count:
            expected = "one number" if self.count == 1 else f"{self.count} numbers"
            raise ScheduleError(f"schedule option {self.name}: expected {expected}, got '{text_of(value)}'")
        return numbers


def text_of(value: object) -> str:
    """A field's value as text: `128x256x64`."""
    return "x".join(map(str, cast("Sequence[object]", value))) if type(value) in (tuple, list) else str(value)


def always(part: str, meaning: str, default: Any = MISSING, **more: Any) -> Any:
    """A field that the text of a schedule always has."""
    return field(default=default, metadata={"part": part, "meaning": meaning, "always": True, **more})


def rare(part: str, meaning: str, default: Any, **more: Any) -> Any:
    """A field that is printed only where it differs from its default."""
    return field(default=default, metadata={"part": part, "meaning": meaning, "default": default, **more})


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How one product is computed. Fields stand in the order of a schedule's text; `schedule["stages"]` finds one by
    its name. Raises ScheduleError if tiles do not divide one another, a number is out of range, or fields contradict
    each other."""

    # A field is its name and its part, what it says, and its default and its values.
    # fmt: off

    cta: tuple[int, int, int] = always("tile",
        "the tile of a CTA: M x N of D, and the part of K that it multiplies in each step of the K loop", minimum=1)
    warp: tuple[int, int] = always("tile",
        "the part of the CTA tile, M x N, of a warp or a warpgroup", minimum=1)
    mma: Shape = always("tile",
        "the shape of the instruction; M = 64 or 128 means warpgroups, 128 in tensor memory, where N is of one of them",
        minimum=1)
    stages: int = always("loop",
        "how many buffers the ring in shared memory has (1: copies do not overlap products)",
        minimum=1, maximum=MAX_STAGES)
    swizzle: int = always("shared",
        "the span in bytes within which the swizzle permutes chunks of 16 bytes of a row (16: no swizzle)",
        128, one_of=SWIZZLES)
    group: int = always("grid",
        "how many rows of CTA tiles form a group. CTAs run through a group column by column, which reuses operands in "
        "L2; a number above the rows that there are makes all of them one group",
        8, minimum=1, maximum=MAX_GRID, of=PRODUCTS)
    accumulate: str = always("arithmetic",
        "the element type of the accumulators", "f32", of=PRODUCTS)
    pack: str = rare("operands",
        "which operands a separate kernel first copies to scratch memory, into whole tiles of aligned rows",
        "none", one_of=("none", "a", "b", "ab"), of=PRODUCTS)
    sliced_k: int = rare("tile",
        "sliced-K: how many groups of warps share each K tile; the CTA adds their sums in shared memory",
        1, minimum=1, of=(FRAGMENTS,))
    split_k: int = rare("grid",
        "split-K: how many CTAs share K of each tile, or the keys of an attention (`partial_sums`). Warpgroups that go "
        "from tile to tile (`ctas`) share only the tiles behind the last whole set of as many",
        1, minimum=1, maximum=MAX_PARTS)
    sync: str = rare("loop",
        "how warps wait for copies, and for other warps that still read a stage. `barrier`: all warps wait at a "
        "barrier of the CTA in each K tile. `mbarrier`: each stage has an mbarrier, at which a warp waits when it "
        "needs the stage", "barrier", one_of=("barrier", "mbarrier"))
    prefetch: int = rare("loop",
        "the prefetch distance: how many K tiles ahead of the products copies run (0: one less than `stages`)",
        0, of=(FRAGMENTS, ATTENTION))
    unroll: int = rare("loop",
        "how many K tiles one iteration of the loop multiplies, a multiple of `stages`, so that addresses of stages "
        "are constants (0: one K tile, whose stage is computed)", 0, of=(FRAGMENTS,))
    ctas: int = rare("grid",
        "how many persistent CTAs there are, at most one for each tile. Each computes one tile after another, and "
        "starts to copy the next tile during the last steps of the current one (0: one CTA for each tile)",
        0, minimum=0, maximum=MAX_GRID)
    staging: int = rare("epilogue",
        "how many rows of a warp tile pass through shared memory at a time before they are stored, so that a warp "
        "stores whole cache lines (0: each lane stores the elements that it holds)", 0)
    fp8_as: str = rare("operands",
        "the type to which 8-bit floats are converted in registers before they are multiplied; chosen where their own "
        "instruction is slower or its sums are short (`none`: they are not converted)",
        "none", one_of=("none", "f16"), of=(FRAGMENTS,))
    order: str = rare("tile",
        "the order of the instructions of a warp tile. `rows`: row by row, each from left to right. `serpentine`: "
        "every second row from right to left, so that its first instruction reads the same B as the one before",
        "serpentine", one_of=("serpentine", "rows"))
    edges: str = rare("grid",
        "what happens to CTA tiles that cross the edge of D. `inside`: they are moved back inside D where possible, so "
        "that accesses need no bounds. `predicated`: they stay where they are, and accesses are predicated",
        "inside", one_of=("inside", "predicated"), of=PRODUCTS)
    add_c: str = rare("epilogue",
        "when C is added. `first`: the accumulators start with C. `last`: C is added just before the store. `auto`: "
        "`last` if rows are staged and there are enough registers, otherwise `first`",
        "auto", one_of=("auto", "first", "last"), of=PRODUCTS)
    access: int = rare("operands",
        "the most bytes that a thread copies to shared memory at a time; the alignment of rows may allow fewer",
        16, one_of=(16, 8, 4))
    consumers: str = rare("loop",
        "how the consumer warpgroups share the tensor cores. `cooperative`: all of them multiply each K tile. "
        "`pingpong`: they take turns, so that one multiplies while another runs its epilogue, or scales sums of blocks",
        "cooperative", one_of=("cooperative", "pingpong"), of=(WARPGROUPS, ATTENTION))
    promote: str = rare("arithmetic",
        "where warpgroups add products of 8-bit floats. `f32`, which is chosen unless sums may be approximate: the "
        "tensor cores add those of one K tile, and f32 registers add K tiles. `none`: the tensor cores add all, "
        "keeping 13 bits of fraction relative to the largest term", "none", one_of=("none", "f32"), of=(WARPGROUPS,))
    cluster: tuple[int, int] = rare("grid",
        "the shape of a cluster, M x N CTAs, which share operand tiles by multicast: CTAs along M share a tile of B, "
        "and CTAs along N a tile of A (only with `wgmma`)", (1, 1), minimum=1, of=(WARPGROUPS,))
    transpose: str = rare("operands",
        "which operands a separate kernel first transposes, so that elements along K are contiguous (`wgmma` needs "
        "this, except for 16-bit elements)", "none", one_of=("none", "a", "b", "ab"), of=(WARPGROUPS,))
    padded: str = rare("operands",
        "`d`: D is computed in scratch memory, with rows that are multiples of 16 bytes, and another kernel copies it",
        "none", one_of=("none", "d"), of=(WARPGROUPS,))
    batch_invariant: str = rare("arithmetic",
        "`True`: the bits of a row of the result do not depend on how many other rows there are. Sums of every M are "
        "added in one order: K is neither sliced nor split, and C comes first", "False", one_of=("False", "True"))
    in_registers: str = rare("tile",
        "which operand a warpgroup loads to registers, to transpose or convert it there; `b` as `multiplied = ba`",
        "none", one_of=("none", "a", "b"), of=(WARPGROUPS,))
    multiplied: str = rare("tile",
        "`ba`: D^T = B^T A^T; `warp` is N x 64, of 8, 16 ... rows", "ab", one_of=("ab", "ba"), of=(WARPGROUPS,))
    partial_sums: str = rare("epilogue",
        "where the sums of parts of K (`split_k`) meet. `memory`: the last CTA to finish adds them. `cluster`: the 2, "
        "4 or 8 CTAs are a cluster, each of which adds a part of the tile in its shared memory, and stores it",
        "memory", one_of=("memory", "cluster"), of=(WARPGROUPS,))
    registers: int = rare("grid",
        "the most registers of a thread, beyond which ptxas spills, so that more CTAs share an SM (0: ptxas chooses)",
        0, minimum=0, maximum=MAX_REGISTERS, of=(FRAGMENTS,))

    # fmt: on

    # What contradicts itself

    def __post_init__(self) -> None:
        for one in LIMITED:
            one.check(getattr(self, one.name))
        if self.together == 1:
            for one in OF_WARPGROUPS:
                if (value := getattr(self, one.name)) != one.default:
                    raise ScheduleError(f"{one.name} = {text_of(value)} is for {WARPGROUPS}, got mma = {self.mma}")
        self._check_tiles()
        self._check_slices()
        self._check_loop()
        self._check_grid()

    def _check_tiles(self) -> None:
        """Refuses tiles that do not divide one another."""
        for axis, tile, step in zip("MN", self.cta, self.warp, strict=False):
            if tile % step:
                raise ScheduleError(f"warp must divide cta, got {step} against {tile} along {axis}: {self._sizes}")
        for axis, tile, step in zip("MNK", (*self.warp, self.cta[2]), (*self.covered, self.mma.k), strict=True):
            if tile % step:
                transposed = " of the transpose" if self.exchanged else ""
                self._check_shape()
                raise ScheduleError(
                    f"cta and warp must be multiples of mma = {self.mma}{transposed}, got {tile} along {axis} "
                    f"(the next multiple is {-(-tile // step) * step}): {self._sizes}"
                )
        if (rows := self.staging) and (rows < 0 or rows & rows - 1 or self.warp[0] % rows):
            raise ScheduleError(
                f"staging must be 0 or a power of two that divides a warp tile's {self.warp[0]} rows, got {rows}"
            )

    def _check_shape(self) -> None:
        """Refuses a shape that no instruction has."""
        from ..isa import mma, sparse_mma  # for messages alone

        shapes = {row.shape for row in (*mma.rows(), *sparse_mma.rows(), *wgmma.rows())}
        if self.mma not in shapes and self.mma.m <= wgmma.M:
            near = min(shapes, key=lambda shape: sum(abs(a - b) for a, b in zip(shape, self.mma, strict=True)))
            raise ScheduleError(f"no instruction has the shape mma = {self.mma}; the nearest is {near}")

    def _check_slices(self) -> None:
        """Checks slices and cuts of K: they must be whole steps, fit the largest CTA, and, with `batch_invariant`, not
        depend on sizes."""
        if self.batch_invariant == "True" and max(self.sliced_k, self.split_k) > 1:
            slices = f"{self.sliced_k} and {self.split_k}"
            raise ScheduleError(f"batch_invariant takes sums in one order, sliced_k = split_k = 1, got {slices}")
        if self.cta[2] % (self.sliced_k * self.mma.k):
            raise ScheduleError(
                f"sliced_k must divide the {self.cta[2] // self.mma.k} steps of {self.mma} in a K tile of "
                f"{self.cta[2]}, got {self._sizes}"
            )
        if self.threads > MAX_THREADS:
            raise ScheduleError(
                f"a CTA has at most {MAX_THREADS} threads, {self.warps} warps take {self.threads}; enlarge warp or "
                f"reduce cta: {self._sizes}"
            )

    def _check_loop(self) -> None:
        """Refuses copies that run ahead of the ring, and turns of parts of it."""
        if self.sync == "mbarrier" and self.stages < MIN_RING:
            raise ScheduleError(f"sync = mbarrier takes at least {MIN_RING} stages, got {self.stages}")
        if not 0 <= self.prefetch < max(self.stages, 2):
            farthest = max(self.stages, 2) - 1
            raise ScheduleError(f"prefetch must be 0 to {farthest} with {self.stages} stages, got {self.prefetch}")
        if self.unroll < 0 or self.unroll % self.stages:
            raise ScheduleError(f"unroll must be a multiple of the {self.stages} stages, got {self.unroll}")

    def _check_grid(self) -> None:
        """Refuses clusters that no GPU supports, and numbers of CTAs that clusters do not divide."""
        down, across = self.cluster
        if down * across > MAX_CTAS or down & down - 1 or across & across - 1:
            raise ScheduleError(f"cluster must be powers of two, at most {MAX_CTAS} CTAs, got {down}x{across}")
        if self.partial_sums == "cluster" and (
            (parts := self.split_k) not in CLUSTER_PARTS
            or self.mma.n % (8 * parts)
            or self.warp != self.covered
            or self.ctas
            or down * across * parts > MAX_CTAS
        ):
            raise ScheduleError(
                f"partial_sums = cluster takes split_k = 2, 4 or 8, {MAX_CTAS} CTAs with those of cluster, ctas = 0, "
                f"and warp = mma with 8 columns for each part, got split_k = {parts}, mma = {self.mma}, {self._sizes}"
            )
        if self.ctas % (down * across):
            raise ScheduleError(f"ctas must be whole clusters of {down}x{across}, got {self.ctas}")
        if self.ctas and self.sliced_k > 1:
            raise ScheduleError(f"ctas must be 0, or more with one slice, got {self.ctas} and {self.sliced_k} slices")

    @property
    def _sizes(self) -> str:
        """The fields that say how large tiles are, for errors."""
        sliced = "" if self.sliced_k == 1 else f", sliced_k = {self.sliced_k}"
        return f"cta = {text_of(self.cta)}, warp = {text_of(self.warp)}{sliced}"

    # What follows

    @property
    def exchanged(self) -> bool:
        """Whether the transposes are multiplied, B^T by A^T."""
        return self.in_registers == "b" or self.multiplied == "ba"

    @property
    def shares_tail(self) -> bool:
        """Whether persistent warpgroups divide the last tiles along K."""
        return self.together > 1 and self.split_k > 1 and self.ctas > 0

    @property
    def covered(self) -> tuple[int, int]:
        """The part of D, M x N, that an instruction computes."""
        return (self.mma.n, self.mma.m) if self.exchanged else (self.mma.m, self.mma.n)

    @property
    def together(self) -> int:
        """Warps that compute a warp tile: four for instructions of warpgroups, otherwise one."""
        return wgmma.WARPS if self.mma.m >= wgmma.M else 1

    @property
    def pairs(self) -> bool:
        """Whether pairs of CTAs multiply together, in tensor memory."""
        return self.mma.m > wgmma.M and self.cluster == (2, 1)

    @property
    def warps(self) -> int:
        """Warps that multiply a CTA tile. Each has one warp tile."""
        return self.together * self.sliced_k * (self.cta[0] // self.warp[0]) * (self.cta[1] // self.warp[1])

    @property
    def threads(self) -> int:
        """Threads that multiply a CTA tile."""
        return 32 * self.warps

    @property
    def own_tiles(self) -> bool:
        """Whether each multiplying warpgroup has its own tiles."""
        return self.consumers == "pingpong" and self.warps == self.together

    @property
    def consumer_warps(self) -> int:
        """Warps of a CTA that multiply: of one tile, or twice as many if two warpgroups have their own."""
        return self.warps * (2 if self.own_tiles else 1)

    @property
    def tiles_ahead(self) -> int:
        """How many K tiles copies run ahead."""
        return self.prefetch or self.stages - 1

    @property
    def cluster_parts(self) -> int:
        """Parts of K whose CTAs are a cluster."""
        return self.split_k if self.partial_sums == "cluster" else 1

    @property
    def shares_launch(self) -> bool:
        """Whether the launch becomes one with others of so few rows, by slices of K (`warp-join`)."""
        return self.sliced_k > 1 and self.cta[0] <= FEW_ROWS and not self.registers

    # As text

    def __getitem__(self, name: str) -> object:
        """The value of a field. Raises ScheduleError for a name that no field has."""
        return getattr(self, field_named(name).name)

    def __str__(self) -> str:
        shown = (f for f in FIELDS.values() if f.always or self[f.name] != f.default)
        return ", ".join(f"{f.name} = {text_of(self[f.name])}" for f in shown)

    def _repr_svg_(self) -> str:
        """The tile of a CTA, for notebooks."""
        from .picture import picture

        return picture(self)

    def _repr_html_(self) -> str:
        """The picture, and what each field says, for notebooks."""
        from .picture import with_table

        return with_table(self, [(f.name, text_of(self[f.name]), f.meaning) for f in FIELDS.values()])

    def options(self) -> dict[str, str]:
        """All fields as options."""
        return {name: text_of(self[name]) for name in FIELDS}

    @staticmethod
    def of(options: Mapping[str, object]) -> Schedule:
        """The schedule with these fields, given as text, numbers or sequences; rare ones may be left out. Raises
        ScheduleError naming the option that is missing, unknown, or cannot be read."""
        if missing := [name for name in ALWAYS if name not in options]:
            raise ScheduleError(f"the schedule lacks {', '.join(missing)}")
        return Schedule(**parse_options(options))  # pyright: ignore[reportArgumentType]

    @staticmethod
    def parse(text: str) -> Schedule:
        """Parses the output of `str`. Raises ScheduleError as `of`, for text that is no schedule."""
        parts = (part.partition(" = ") for part in text.split(", "))
        try:
            return Schedule.of({name: value for name, _, value in parts})
        except ScheduleError as error:
            raise ScheduleError(f"'{text}' is no schedule: {error}") from None

    def with_fields(self, **values: Any) -> Schedule:
        """This schedule with some fields replaced: `with_fields(stages=3, group=4)`. Raises ScheduleError for an
        unknown name, or a value that contradicts the other fields."""
        for name in values:
            field_named(name)
        return replace(self, **values)


_KINDS = get_type_hints(Schedule)

FIELDS = {f.name: ScheduleField(name=f.name, kind=_KINDS[f.name], **f.metadata) for f in fields(Schedule)}
"""The fields by name, as they stand in the text."""

LIMITED = tuple(f for f in FIELDS.values() if f.one_of or f.minimum is not None)
"""The fields that have not all values of their type."""

OF_WARPGROUPS = tuple(f for f in FIELDS.values() if FRAGMENTS not in f.of)
"""The fields that products of fragments have no choice of."""

ALWAYS = tuple(f.name for f in FIELDS.values() if f.always)
"""The fields that the text of a schedule always has."""


def field_named(name: str) -> ScheduleField:
    """The field of a name. Raises ScheduleError if there is none."""
    if name in FIELDS:
        return FIELDS[name]
    from difflib import get_close_matches  # for messages alone

    own = ": its fields are arguments of their own, such as stages=3;" if name == "schedule" else ";"
    hint = "".join(f", did you mean '{near}'?" for near in get_close_matches(name, FIELDS, 1, 0.7)) or own
    raise ScheduleError(f"unknown schedule option '{name}'{hint} known: {', '.join(FIELDS)}")


def parse_options(options: Mapping[str, object]) -> dict[str, object]:
    """Reads schedule fields from text, numbers or sequences. Raises ScheduleError naming the option that is unknown or
    cannot be read."""
    return {name: field_named(name).read(value) for name, value in options.items()}


@dataclass(frozen=True)
class PartialSchedule:
    """Some fields of a schedule, in the order of its fields; `warp-schedule` chooses the others."""

    values: tuple[tuple[str, object], ...]

    @staticmethod
    def of(options: Mapping[str, object]) -> PartialSchedule:
        """The fields with these values, given as text, numbers or sequences. Raises ScheduleError naming the option
        that is unknown, cannot be read, or has a value that no schedule has."""
        values = parse_options(options)
        for one in LIMITED:
            if one.name in values:
                one.check(values[one.name])
        return PartialSchedule(tuple((name, values[name]) for name in FIELDS if name in values))

    def options(self) -> dict[str, object]:
        """The values by field."""
        return dict(self.values)

    def __str__(self) -> str:
        return ", ".join(f"{name} = {text_of(value)}" for name, value in self.values)


def roles(named: str) -> str:
    """The operands that a field names, such as those that are packed: "", "a", "b" or "ab"."""
    return "" if named == "none" else named
