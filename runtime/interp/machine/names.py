"""What the names of a kernel mean: registers and their types, special registers, variables, labels, functions."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ....dialect.isa.row import VECTORS
from ....dialect.ptx.text.syntax import Variable
from ....dialect.ptx.types import PACKED_BITS, bits_of
from ...numerics.floats import Array
from .events import LANES, Geometry, unravel
from .flow import CLOCKS
from .state import RESERVED_BYTES, WORKSPACE, RegisterSlot, StackFrame, State

# The types of instructions: how numpy sees their bits.

DTYPES: dict[str, type[np.generic]] = {
    "pred": np.bool_,
    **{f"{kind}{n}": getattr(np, f"uint{n}") for kind in "bu" for n in (8, 16, 32, 64)},
    **{f"s{n}": getattr(np, f"int{n}") for n in (8, 16, 32, 64)},
    **{f"f{n}": getattr(np, f"float{n}") for n in (16, 32, 64)},
    "f16x2": np.uint32,
    **{type: getattr(np, f"uint{n}") for type, n in PACKED_BITS.items()},
    "b128": np.complex128,
}
"""How the bits of each type are seen: bf16 and packed types as words, 128 bits as what numpy has that is as wide."""

FLOATS = frozenset(("f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "f32x2"))


def integer_range(type: str) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    bits = bits_of(type)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if type[0] == "s" else (0, (1 << bits) - 1)


# Special registers, by name: one value for each thread in flight.
#
# Source: PTX ISA, chapter 10 (Special Registers). CTAs are spread over the multiprocessors in turn, of which there are
# as many as its target has. What the driver says in `%envreg1` and `%envreg2`, and what the reserved part of shared
# memory is for, CUDA's header of cooperative groups shows: the address where the CTAs of a grid meet, and room for the
# warps of a tile that is wider than one.


def _thread(axis: int) -> Callable[[State], Array]:
    def values(state: State) -> Array:
        numbers = np.arange(state.geometry.warps_per_cta * LANES)
        return state.geometry.in_cta(unravel(numbers, state.geometry.block)[axis])

    return values


def _per_cta(values: Callable[[Geometry, Array, Array], Array]) -> Callable[[State], Array]:
    """What follows from the number of a CTA's cluster and from its rank there."""

    def per_thread(state: State) -> Array:
        geometry = state.geometry
        cluster, rank = np.divmod(geometry.first + np.arange(geometry.ctas), geometry.cluster_size)
        return geometry.per_cta(values(geometry, cluster, rank))

    return per_thread


def _cta(axis: int) -> Callable[[State], Array]:
    return _per_cta(
        lambda g, cluster, rank: unravel(cluster, g.clusters)[axis] * g.cluster[axis] + unravel(rank, g.cluster)[axis]
    )


def _constant(value: Callable[[State], int]) -> Callable[[State], Array]:
    return lambda state: np.full(state.threads, value(state), np.int64)


def _lane_mask(bits: Callable[[int], int]) -> Callable[[State], Array]:
    table = np.array([bits(lane) & 0xFFFFFFFF for lane in range(LANES)], np.uint32)
    return lambda state: table[state.geometry.lane()]


SPECIALS: dict[str, Callable[[State], Array]] = {
    **{f"%tid.{a}": _thread(i) for i, a in enumerate("xyz")},
    **{f"%ntid.{a}": _constant(lambda s, i=i: s.geometry.block[i]) for i, a in enumerate("xyz")},
    **{f"%ctaid.{a}": _cta(i) for i, a in enumerate("xyz")},
    **{f"%nctaid.{a}": _constant(lambda s, i=i: s.geometry.grid[i]) for i, a in enumerate("xyz")},
    **{f"%clusterid.{a}": _per_cta(lambda g, c, _, i=i: unravel(c, g.clusters)[i]) for i, a in enumerate("xyz")},
    **{f"%nclusterid.{a}": _constant(lambda s, i=i: s.geometry.clusters[i]) for i, a in enumerate("xyz")},
    **{f"%cluster_ctaid.{a}": _per_cta(lambda g, _, r, i=i: unravel(r, g.cluster)[i]) for i, a in enumerate("xyz")},
    **{f"%cluster_nctaid.{a}": _constant(lambda s, i=i: s.geometry.cluster[i]) for i, a in enumerate("xyz")},
    # The fourth element is unused, and 0 (10.1 to 10.13).
    **{f"{name}.w": _constant(lambda s: 0) for name in VECTORS},
    "%cluster_ctarank": _per_cta(lambda g, cluster, rank: rank),
    "%cluster_nctarank": _constant(lambda s: s.geometry.cluster_size),
    "%is_explicit_cluster": _constant(lambda s: s.explicit_cluster),
    "%laneid": lambda state: state.geometry.lane(),
    "%warpid": lambda state: state.geometry.thread_in_cta() // LANES,
    "%nwarpid": _constant(lambda s: s.geometry.warps_with_threads),
    "%lanemask_eq": _lane_mask(lambda n: 1 << n),
    "%lanemask_lt": _lane_mask(lambda n: (1 << n) - 1),
    "%lanemask_le": _lane_mask(lambda n: (2 << n) - 1),
    "%lanemask_gt": _lane_mask(lambda n: -(2 << n)),
    "%lanemask_ge": _lane_mask(lambda n: -(1 << n)),
    "%dynamic_smem_size": _constant(lambda s: s.dynamic_bytes),
    "%total_smem_size": _constant(lambda s: s.shared_bytes),
    "%aggr_smem_size": _constant(lambda s: s.shared_bytes),
    "%reserved_smem_offset_begin": _constant(lambda s: s.reserved),
    "%reserved_smem_offset_end": _constant(lambda s: s.reserved + RESERVED_BYTES),
    "%reserved_smem_offset_cap": _constant(lambda s: s.reserved + RESERVED_BYTES),
    "%reserved_smem_offset_0": _constant(lambda s: s.reserved),
    "%reserved_smem_offset_1": _constant(lambda s: s.reserved),
    "%envreg1": _constant(lambda s: s.addresses[WORKSPACE] >> 32),
    "%envreg2": _constant(lambda s: s.addresses[WORKSPACE] & 0xFFFFFFFF),
    "%smid": lambda s: s.geometry.per_cta((s.geometry.first + np.arange(s.geometry.ctas)) % s.multiprocessors),
    "%nsmid": _constant(lambda s: s.multiprocessors),
    "%gridid": _constant(lambda s: 1),
    **{name: lambda s, name=name: s.clock.values(name, np.int64) for name in CLOCKS},
}


@dataclass(frozen=True, slots=True)
class VariablePlace:
    """A variable: its space, and its address once a state is known.

    `size` is the bytes of a `.param` variable inside a function; 0 for all others. `extent` is the bytes of a shared or
    local variable called `name`, 0 where they are not known. `stacked` is for variables whose address differs by
    thread: it gives the register that holds it, some bytes further on. `code` is the address of a function.
    """

    space: str
    address: Callable[[State], int]
    size: int = 0
    name: str = ""
    extent: int = 0
    stacked: Callable[[int], RegisterSlot] | None = None
    code: int = 0


@dataclass
class NameScope:
    """What the names of one scope mean; unknown ones are looked up outside. `tables` has the labels of each
    `.branchtargets`."""

    registers: ChainMap[str, RegisterSlot] = field(default_factory=ChainMap[str, RegisterSlot])
    places: ChainMap[str, VariablePlace] = field(default_factory=ChainMap[str, VariablePlace])
    labels: ChainMap[str, int] = field(default_factory=ChainMap[str, int])
    tables: ChainMap[str, tuple[str, ...]] = field(default_factory=ChainMap[str, tuple[str, ...]])

    def inner(self) -> NameScope:
        """A scope inside of this one."""
        each = self.registers.new_child(), self.places.new_child(), self.labels.new_child(), self.tables.new_child()
        return NameScope(*each)


@dataclass(frozen=True, slots=True)
class Formal:
    """A parameter of a function, or what it returns: `size` bytes of the arguments at `place`, or a register."""

    variable: Variable
    size: int
    place: VariablePlace | None = None
    slot: RegisterSlot | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """A function in the code of a kernel: its entry, the register of its return address, its parameters and results.

    `stack` has its variables for each call, if calls can nest. `passes` says that results are passed in
    `StorageLayout.results`, where indirect callers read them.
    """

    name: str
    entry: int
    back: RegisterSlot
    parameters: tuple[Formal, ...]
    results: tuple[Formal, ...]
    stack: StackFrame | None = None
    passes: bool = False
