"""Instructions by their opcodes: the rows that spell one, what it does to memory and to other threads, and the nearest
spellings. Source: PTX ISA 9.7."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from heapq import nsmallest
from importlib import import_module
from itertools import chain
from typing import cast

from .. import plugins
from ..isa import mma, sparse_mma, wgmma
from ..isa.form import Form, Key, order_key
from ..isa.row import Bindings, Row
from .rows.grammar import PatternRow, is_type, name_of

# The matrix instructions of warps and warpgroups, family by family. Source: PTX ISA 9.7.14 and 9.7.15.


def _of_wmma(table: str) -> Callable[[], tuple[Form, ...]]:
    """A table of `wmma`, which few kernels have: its module is imported when one asks for it."""
    return lambda: getattr(import_module("..isa.wmma", __package__), table)()


FAMILIES: Mapping[str, Callable[[], tuple[Form, ...]]] = {
    # 9.7.14.4
    "wmma.load": _of_wmma("load_rows"),
    "wmma.store": _of_wmma("store_rows"),
    "wmma.mma": _of_wmma("mma_rows"),
    # 9.7.14.5
    "mma": mma.rows,
    "ldmatrix": mma.load_rows,
    "stmatrix": mma.store_rows,
    "movmatrix": lambda: (mma.MOVMATRIX,),
    # 9.7.14.6
    "mma.sp": sparse_mma.rows,
    # 9.7.15.5 and .6
    "wgmma.mma_async": wgmma.rows,
}
"""The rows of each instruction, by its name."""

ROOTS = frozenset(name.partition(".")[0] for name in FAMILIES)
"""The first words of these instructions."""

SPARSE = frozenset(("sp", "sp::ordered_metadata"))
"""The qualifiers of `mma.sp`, wherever they stand."""


def family(spelling: str) -> str | None:
    """The instruction of an opcode, such as "wmma.load"; None for other families."""
    first, *words = spelling.split(".")
    if first == "mma":
        return "mma.sp" if not SPARSE.isdisjoint(words) else first
    name = f"{first}.{words[0]}" if words else first
    return name if name in FAMILIES else first if first in FAMILIES else None


@cache
def _spelled(name: str, shape: str = "") -> Mapping[str, Form]:
    """The rows of a family, or those of a shape, by their spelling."""
    rows = FAMILIES[name]()
    return {row.spelling: row for row in rows if not shape or str(getattr(row, "shape", "")) == shape}


@cache
def _by_order_key(name: str) -> Mapping[Key, Form]:
    """The rows of a family, and what older PTX versions had of it besides the text, by spellings that ignore the order
    of qualifiers. Where two agree, the ISA's own row comes first."""
    former = _of_wmma("former_rows")() if name.startswith("wmma") else ()
    rows = (*(row for row in former if family(row.spelling) == name), *FAMILIES[name]())
    return {order_key(row.spelling): row for row in rows}


def matrix_form(opcode: str) -> Form | None:
    """The row of a matrix instruction, whatever the order of its qualifiers; None for other opcodes."""
    name = family(opcode)
    if name is None:
        return None
    shape = next((word for word in opcode.split(".") if word[:1] == "m" and word[1:2].isdecimal()), "")
    return _spelled(name, shape).get(opcode) or _by_order_key(name).get(order_key(opcode))


# The other instructions, by the first word of their opcodes: their rows are imported when one is asked for.


def _frequent() -> tuple[PatternRow, ...]:
    from .rows import arithmetic, copies, data, synchronisation

    return (
        *arithmetic.INTEGER_ROWS, *arithmetic.FLOATING_ROWS, *arithmetic.COMPARISON_ROWS, *data.MOVE_ROWS,
        *data.CONVERSION_ROWS, *data.MEMORY_ROWS, *copies.ASYNCHRONOUS_ROWS, *synchronisation.CONTROL_ROWS,
        *synchronisation.BARRIER_ROWS, *synchronisation.ATOMIC_ROWS, *synchronisation.MBARRIER_ROWS,
        *synchronisation.WARPGROUP_ROWS, *arithmetic.VIDEO_ROWS,
    )  # fmt: skip


def _of_boxes() -> tuple[PatternRow, ...]:
    from .rows import copies

    return (*copies.multimem_rows(), *copies.tensor_rows())


@cache
def _rare() -> tuple[PatternRow, ...]:
    """Two fifths of all rows, imported for what no other row spells: tensor memory and opaque operands."""
    from .rows import opaque, tcgen05

    return (*tcgen05.TENSOR_CORE_ROWS, *opaque.TEXTURE_ROWS, *opaque.FABRIC_ROWS)


_TABLES = _frequent, _of_boxes, _rare
"""The rows, each part made when none before it spells an opcode."""


def every_row() -> tuple[PatternRow, ...]:
    """All but those of the matrix instructions, which `FAMILIES` makes when they are asked for."""
    return tuple(chain.from_iterable(part() for part in _TABLES))


@cache
def roots() -> frozenset[str]:
    """The first words of all opcodes with rows."""
    return ROOTS.union(_table(every_row()), _from_outside())


@cache
def _by_root(part: Callable[[], Iterable[PatternRow]]) -> dict[str, list[PatternRow]]:
    return _table(part())


def _of_root(root: str) -> Iterator[Sequence[PatternRow]]:
    """The rows of opcodes with a first word, part by part; those of plugins last."""
    yield from (_by_root(part).get(root, ()) for part in _TABLES)
    yield _from_outside().get(root, ())


@cache
def _from_outside() -> dict[str, list[PatternRow]]:
    """The rows of plugins. They are used for opcodes that no row of this package spells."""
    return _table(row for rows in plugins.everything(plugins.ROWS) for row in cast("Iterable[PatternRow]", rows))


def _table(rows: Iterable[PatternRow]) -> dict[str, list[PatternRow]]:
    table: dict[str, list[PatternRow]] = {}
    for row in rows:
        table.setdefault(row.root, []).append(row)
    return table


@lru_cache(65536)
def find(opcode: str) -> tuple[tuple[Row, Bindings], ...]:
    """The rows that spell an opcode, each with the values of the qualifiers."""
    if (form := matrix_form(opcode)) is not None:
        return ((form, {}),)
    root = opcode.partition(".")[0]
    return next(filter(None, (_spelling(opcode, rows) for rows in _of_root(root))), ())


def _spelling(opcode: str, rows: Iterable[PatternRow]) -> tuple[tuple[Row, Bindings], ...]:
    return tuple((row.spelled(opcode), bindings) for row in rows if (bindings := row.match(opcode)) is not None)


def canonical(opcode: str) -> str:
    """The opcode with its qualifiers in the order of the text; as it is where no row spells it."""
    spelled = find(opcode)
    return spelled[0][0].canonical(opcode) if spelled else opcode


LIKELY = 24
"""How many spellings are compared in full."""


def _likely_forms(opcode: str) -> list[str]:
    """The spellings of matrix instructions that share most words with an opcode of their families."""
    name, root, words = family(opcode), opcode.partition(".")[0], set(opcode.split("."))
    names = [name] if name else [n for n in FAMILIES if n.partition(".")[0] == root]
    spellings = dict.fromkeys(spelling for n in names for spelling in _spelled(n))
    return nsmallest(LIKELY, spellings, key=lambda spelling: len(words.symmetric_difference(spelling.split("."))))


ROWS_LOOKED_AT = 8
"""Of one root, those that have most of the words asked for: only their spellings are compared."""


@lru_cache(4096)
def nearest(opcode: str, count: int = 3) -> tuple[str, ...]:
    """The existing spellings most like an unknown one, best first. They have the same opcode root if any has it."""
    from difflib import get_close_matches  # for messages alone
    from itertools import takewhile
    from operator import eq

    root = opcode.partition(".")[0]
    if root not in roots():
        return tuple(get_close_matches(root, sorted(roots()), count))
    forms = _likely_forms(opcode) if root in ROOTS else []
    words = frozenset(opcode.split("."))
    rows = chain.from_iterable(_of_root(root))

    def alike(row: PatternRow) -> tuple[int, int]:
        begun = (sum(takewhile(bool, map(eq, word, has))) for word in words - row.words for has in row.words)
        return len(words & row.words), max(begun, default=0)

    likely = sorted(rows, key=alike, reverse=True)[:ROWS_LOOKED_AT]
    samples = {text: None for row in likely for text in row.samples(words)}
    return tuple(get_close_matches(opcode, [*forms, *samples], count, 0.0))


# What an instruction does to memory and to other threads: questions that its row and its qualifiers answer.
#
# Checks, traces and the interpreter ask here; none of them looks into the text of an opcode.

STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))
"""The qualifiers of strong accesses. Source: PTX ISA 8.4."""

_BULK_REDUCTIONS = frozenset(("cp.reduce.async.bulk", "cp.reduce.async.bulk.tensor"))
_ASYNCHRONOUS = frozenset(
    ("wgmma.mma_async", "tcgen05.mma", "tcgen05.cp", "cp.async.bulk", "cp.async.bulk.tensor", *_BULK_REDUCTIONS)
)
_ACTING = ("9.7.9.5", "9.7.9.6", "9.7.9.18", "9.7.9.25", "9.7.12", "9.7.13", "9.7.14", "9.7.15", "9.7.16", "9.7.19")
"""The sections of instructions that do more than compute, addresses or none: shuffles, cache policies, asynchronous
copies, control flow, synchronisation, products of matrices, miscellaneous."""

TENSOR_CORES = "tcgen05"
"""The first word of what tensor cores do with tensor memory."""

COPIES, BULK, PRODUCTS = "cp.async", "cp.async.bulk", "wgmma"
"""Asynchronous operations that are completed in groups: copies of threads, bulk copies, products of warpgroups."""

_ARRIVING = frozenset(("cp.async.mbarrier.arrive", "tcgen05.commit"))
_WRITING_ROOTS = frozenset(("st", "stmatrix", "atom", "red", "cp", "tensormap", "applypriority"))
_WRITING_NAMES = frozenset(("wmma.store", "multimem.red", "multimem.st", "tcgen05.alloc"))


@dataclass(frozen=True)
class Traits:
    """An instruction by its opcode. `row` is the first row that spells it, None where none does; `bindings` what its
    qualifiers bind there."""

    opcode: str
    row: Row | None
    bindings: Bindings

    @cached_property
    def name(self) -> str:
        """The opcode up to its first qualifier: "cp.async.bulk.tensor"."""
        return name_of(self.opcode)

    @cached_property
    def root(self) -> str:
        """The first word of the opcode."""
        return self.opcode.partition(".")[0]

    @cached_property
    def qualifiers(self) -> frozenset[str]:
        """The words behind the name."""
        return frozenset(self.opcode.split(".")[self.name.count(".") + 1 :])

    @property
    def means(self) -> str:
        """The key of the instruction's meaning in the interpreter; "" without a row."""
        return "" if self.row is None else self.row.means

    def first(self, words: int) -> str:
        """So many words of the opcode, as messages name it."""
        return ".".join(self.opcode.split(".")[:words])

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The types that the opcode names, in its order."""
        return tuple(word for word in self.opcode.split(".") if is_type(word))

    # Memory

    @property
    def space(self) -> str:
        """The state space that the row binds, without its window: "shared"; "" where the address is generic."""
        return self.bindings.get("P", "").partition("::")[0]

    @cached_property
    def has_address(self) -> bool:
        """Whether an operand is an address, one in tensor memory aside, or a place in a tensor."""
        return self.row is not None and any(slot.is_address and slot.type != "tensor" for slot in self.row.operands)

    @cached_property
    def strength(self) -> int:
        """How strong its accesses are: 0 if they are weak, 1 if they are strong for its CTA alone, 2 for others too."""
        strong = self.updates or self.reduces_in_bulk or not self.qualifiers.isdisjoint(STRONG)
        return 2 * strong - ("cta" in self.qualifiers and strong and not self.on_mbarrier)

    @property
    def splits_away(self) -> bool:
        """Whether it is not atomic in shared memory of another CTA: a GPU lacks the instruction for that memory, and
        ptxas (13.0 to 13.5) falls back to a load and a store (an H200 loses updates; not of `add`, `exch`, `cas`)."""
        wide, kinds = {"u64", "s64", "b64"} & self.qualifiers, {"min", "max", "and", "or", "xor"} & self.qualifiers
        return self.name in ("atom", "red") and bool(wide and kinds)

    @property
    def adds_pairs(self) -> bool:
        """Whether it adds to pairs of halves, in shared memory of another CTA -0 and an infinity whatever is there (an
        H200, by ptxas 13.0; one thread alone, too)."""
        return self.updates and not self.qualifiers.isdisjoint(("f16x2", "bf16x2"))

    @property
    def acquires(self) -> bool:
        return not self.qualifiers.isdisjoint(("acquire", "acq_rel"))

    @property
    def releases(self) -> bool:
        return not self.qualifiers.isdisjoint(("release", "acq_rel"))

    @property
    def updates(self) -> bool:
        """Whether it reads, combines and writes back as one."""
        return self.root in ("atom", "red")

    @property
    def reduces_in_bulk(self) -> bool:
        """Whether it is a bulk reduction, which updates each element as `red` does."""
        return self.name in _BULK_REDUCTIONS

    @cached_property
    def writes_memory(self) -> bool:
        """Whether the memory of its first address may change."""
        return self.has_address and (self.root in _WRITING_ROOTS or self.name in _WRITING_NAMES)

    @cached_property
    def on_mbarrier(self) -> bool:
        """Whether its address is that of an mbarrier object."""
        return self.root == "mbarrier" or self.name in _ARRIVING

    # Asynchronous operations

    @cached_property
    def asynchronous(self) -> bool:
        """Whether it accesses memory through the asynchronous proxy. Source: PTX ISA 8.6."""
        return self.name in _ASYNCHRONOUS

    @property
    def is_grouped(self) -> bool:
        """Whether a group of bulk operations is what completes it."""
        return "bulk_group" in self.qualifiers

    @cached_property
    def commits(self) -> str:
        """The kind of group that the instruction commits: `COPIES`, `BULK` or `PRODUCTS`; "" if it commits none."""
        kind, _, ends = self.name.rpartition(".")
        return kind if ends == "commit_group" else ""

    @cached_property
    def awaits(self) -> str:
        """The operations whose groups it waits for, as in `commits`."""
        kind, _, ends = self.name.rpartition(".")
        return kind if ends in ("wait_group", "wait_all") else ""

    @property
    def awaits_all(self) -> bool:
        """Whether it waits for operations that are in no group, too."""
        return bool(self.awaits) and self.name.endswith("wait_all")

    @property
    def completes_transactions(self) -> bool:
        """Whether an mbarrier object is told of its bytes."""
        return self.name == "mbarrier.complete_tx" or "mbarrier::complete_tx::bytes" in self.qualifiers

    # Other threads

    @property
    def is_barrier(self) -> bool:
        """Whether threads of a CTA, a warp or a cluster wait for each other; objects in memory aside."""
        return self.root in ("bar", "barrier")

    @property
    def is_fence(self) -> bool:
        return self.root in ("membar", "fence")

    def fences_asynchronous(self, space: str) -> bool:
        """Whether it is a fence between the generic and the asynchronous proxy, for a state space."""
        spaces = {word.partition("::")[0] for word in self.qualifiers} & {"global", "shared"}
        return self.name == "fence.proxy" and "async" in self.qualifiers and (not spaces or space in spaces)

    @cached_property
    def fences_grid(self) -> bool:
        """Whether it is a fence of memory for other CTAs."""
        return self.is_fence and self.releases_to_cluster and not self.fences_objects

    @property
    def fences_maps(self) -> str:
        """The side of a proxy fence for tensor maps: "release" or "acquire"; "" for other fences."""
        if self.name != "fence.proxy" or "tensormap::generic" not in self.qualifiers:
            return ""
        return "acquire" if "acquire" in self.qualifiers else "release"

    @property
    def copies_maps(self) -> bool:
        """Whether it copies a tensor map, and is the release side of such a fence."""
        return self.name == "tensormap.cp_fenceproxy"

    @property
    def fences_objects(self) -> bool:
        """Whether it is the fence for the initialisation of mbarrier objects."""
        return self.is_fence and "mbarrier_init" in self.qualifiers

    @cached_property
    def releases_to_cluster(self) -> bool:
        """Whether the instruction publishes earlier accesses of its thread to the other CTAs of the cluster: a fence,
        or a release, of at least that scope. `barrier.cluster.arrive` releases unless it is `.relaxed`."""
        if self.name == "barrier.cluster.arrive":
            return "relaxed" not in self.qualifiers
        wide = not self.qualifiers.isdisjoint(("gl", "cluster", "gpu", "sys"))
        return wide and self.name != "fence.proxy" and (self.is_fence or self.releases)

    @property
    def aligned(self) -> bool:
        """Whether it is marked as executed by all lanes of a warp together."""
        return ".aligned" in self.opcode

    @property
    def takes_whole_warps(self) -> bool:
        """Whether all lanes of a warp must execute it together: it is marked so, or is `bar`."""
        return self.aligned or (self.root == "bar" and self.name != "bar.warp.sync")

    @cached_property
    def observes_others(self) -> bool:
        """Whether it may observe effects of other threads, or lets them run."""
        return self.root == "atom" or self.name == "nanosleep" or (self.root == "ld" and self.strength > 0)

    @cached_property
    def between_ctas(self) -> bool:
        """Whether CTAs can tell each other something by it, or do something in an order."""
        if self.root in ("multimem", "call") or self.reduces_in_bulk:
            return True
        if self.is_fence:
            return self.name != "fence.proxy" and not self.qualifiers.isdisjoint(("gl", "gpu", "sys"))
        ordered = self.updates or (self.root in ("ld", "st") and self.strength > 0)
        return ordered and self.space != "shared" and not self.completes_transactions

    @cached_property
    def computes(self) -> bool:
        """Whether its results depend on the thread's own operands alone, and it has no other effect."""
        return self.row is not None and not self.has_address and not self.row.of_section(*_ACTING)


@lru_cache(4096)
def traits(opcode: str) -> Traits:
    """The row and properties of an instruction."""
    spelled = find(opcode)
    return Traits(opcode, *(spelled[0] if spelled else (None, Bindings())))
