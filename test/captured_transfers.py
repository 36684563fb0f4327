"""Drawn programs of moves through memory for recording: two CTAs of a cluster load, store, reduce and copy, by every
spelling that the target has, between shared memory, that of the other CTA and global memory, and wait by every kind of
barrier. What one thread writes another touches behind a barrier alone, so that the words follow from the text, and the
checks of the interpreter have nothing to say."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from captured import Choices, Random
from captured_scalars import PLAIN
from numpy.typing import NDArray

from warploom.dialect.isa import mma
from warploom.dialect.isa.row import CONSTANT, SCALAR, VECTOR, Slot, Version, target
from warploom.dialect.ptx.instructions import every_row
from warploom.dialect.ptx.rows.grammar import PatternRow
from warploom.dialect.ptx.text.syntax import bits_of

CTAS, THREADS = 2, 128
SLOT = 16
"""Bytes of a region that belong to one thread at a time, by a permutation that each phase draws."""
REGION = SLOT * THREADS
REGIONS = 2
"""Of shared memory, and of global memory of each CTA."""
VERSION: Version = (8, 6)
PHASES = 14
WORDS = 4
"""Registers of a thread that take in whatever it reads, and are what it writes."""
TARGET = target("sm_90a")
COMMUTES = ("add", "min", "max", "and", "or", "xor")
INTEGERS = ("b32", "b64", "u32", "s32", "u64", "s64")
WINDOWS = {
    "shared": ("", "shared", "shared::cta", "shared::cluster"),
    "peer": ("", "shared::cluster"),
    "global": ("", "global"),
    "constant": ("", "global"),
}
"""Memory of this CTA, that of the other, global memory of this CTA, words that nobody writes: by what spaces they are
accessed."""
LEFT_OUT = (".const", ".param", ".local", ".mmio", ".sys", "cp_mask")
"""Spellings of other memory, and of other GPUs."""
HINTS = ("L2::64B", "L2::128B", "L2::256B", "L2::cache_hint", *(f"L1::{word}" for word in (
    "evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")))  # fmt: skip
"""What generic addresses of global memory alone may have."""


@dataclass(frozen=True)
class TransferCase:
    """A program by its number."""

    number: int

    @property
    def name(self) -> str:
        return f"transfers {self.number}"


NOT_ATOMIC = (131, 132, 317, 364)
"""Programs in which threads meet in 64-bit reductions of the other CTA's memory, which GPUs do by a load and a store:
an H200 answers differently in each run, and the checks say so."""


def cases(count: int = 200) -> Iterator[TransferCase]:
    yield from (TransferCase(number) for number in range(count) if number not in NOT_ATOMIC)


@cache
def opcodes(root: str, meaning: str) -> list[tuple[PatternRow, list[str]]]:
    """Rows with their spellings."""
    rows = [row for row in every_row() if row.runs_on(TARGET) and row.root == root and (row.meaning or root) == meaning]
    each = ((row, [o for o in row.spellings() if row.spelled(o).ptx <= VERSION]) for row in rows)
    return [(row, spelled) for row, spelled in each if spelled]


@dataclass(frozen=True)
class Instruction:
    opcode: str
    space: str
    slots: tuple[Slot, ...]

    @property
    def bytes(self) -> int:
        """Of what is loaded or stored."""
        value = next(slot for slot in self.slots if is_value(slot))
        return max(1, value.count * bits_of(value.type) // 8)

    @property
    def constant(self) -> bool:
        """Whether it reads what does not change."""
        return ".nc" in self.opcode or self.opcode.startswith("ldu")

    @property
    def words(self) -> list[str]:
        return self.opcode.split(".")

    def touches(self, window: str) -> bool:
        """Whether it may access a window."""
        hinted = any(word in HINTS for word in self.words)
        right = self.space in WINDOWS[window] and not (hinted and window in ("shared", "peer"))
        return right and (window == "constant" or not self.constant)


def is_value(slot: Slot) -> bool:
    return slot.kind in (SCALAR, VECTOR) and not slot.condition


class _Draw(Choices):
    """The text of a program. `%s` and `%peer` are where shared memory of this CTA and of the other begins, `%generic`
    and `%there` their generic addresses, `%g` where global memory of this CTA begins, `%in` words that nobody writes,
    `%t` the thread, `%v` its words."""

    def __init__(self, number: int) -> None:
        super().__init__(f"transfers {number}")
        self.labels = 0
        self.parity = [0, 0, 0]
        self.lines: list[str] = []
        self.remote = False
        """Whether the phase touches the other CTA."""

    def emit(self, *lines: str) -> None:
        self.lines += lines

    def word(self) -> str:
        return f"%v{self.below(WORDS)}"

    def instruction(self, root: str, meaning: str, fits: Callable[[Instruction], bool] = lambda _: True) -> Instruction:
        while True:
            row, spelled = self.pick(opcodes(root, meaning))
            opcode = self.pick(spelled)
            bindings = row.match(opcode)
            assert bindings is not None
            chosen = Instruction(opcode, bindings.get("P", ""), self.pick(row.signatures_of(bindings)))
            if not any(word in opcode for word in LEFT_OUT) and fits(chosen):
                return chosen

    def address(self, window: str, space: str, offset: str) -> str:
        """The address of an offset, a register, from the begin of a window."""
        if space in ("", "global"):
            base = {"global": "%g", "constant": "%in", "shared": "%generic", "peer": "%there"}[window]
            self.emit(f"cvt.u64.u32 %ad, {offset}; add.u64 %ad, %ad, {base};")
            return "[%ad]"
        self.emit(f"add.u32 %a, {'%peer' if window == 'peer' else '%s'}, {offset};")
        return "[%a]"

    def windows(self, *more: str) -> str:
        """One that the phase may touch."""
        return self.pick(("shared", "global", *more, *["peer"] * self.remote))

    def anywhere(self, size: int) -> str:
        """The offset of some element of so many bytes in any region, another for each thread."""
        count = REGIONS * REGION // size
        self.emit(f"mad.lo.u32 %o, %t, {self.below(count)}, {self.below(count)};")
        self.emit(f"and.b32 %o, %o, {count - 1}; mul.lo.u32 %o, %o, {size};")
        return "%o"

    def own(self) -> None:
        """Draws what slot of which region is a thread's own, %mine."""
        self.emit(f"mad.lo.u32 %mine, %t, {2 * self.below(THREADS // 2) + 1}, {self.below(THREADS)};")
        self.emit(f"and.b32 %mine, %mine, {THREADS - 1};")
        self.emit(f"mad.lo.u32 %mine, %mine, {SLOT}, {REGION * self.below(REGIONS)};")

    def within(self, size: int) -> str:
        """The offset of an element of the own slot."""
        self.emit(f"add.u32 %o, %mine, {self.below(SLOT // size) * size};")
        return "%o"

    def registers(self, slot: Slot, number: int) -> list[str]:
        """Those of an operand: %x, their bits, the operand's number, and which of a vector. Some are wider."""
        bits = max(8, bits_of(slot.type))
        wider = bits == 8 or (slot.wider and slot.type[0] != "f")
        chosen = self.pick([c for c in (16, 32, 64, 128) if c == bits or (bits < c < 128 and wider)])
        return [f"%x{chosen}_{number}{i}" for i in range(slot.count)]

    def fold(self, registers: Sequence[str]) -> None:
        """Takes what was read into the thread's words."""
        for register in registers:
            word, bits = self.word(), register.partition("_")[0][2:]
            whole = f"mov.b128 {{%w, %w2}}, {register}; xor.b64 %w, %w, %w2;"
            self.emit(whole if bits == "128" else f"cvt.u64.u{bits} %w, {register};")
            self.emit("mov.b64 {%y0, %y1}, %w; xor.b32 %y0, %y0, %y1;")
            self.emit(f"shf.l.wrap.b32 {word}, {word}, {word}, 5; xor.b32 {word}, {word}, %y0;")

    def fold_flag(self) -> None:
        self.emit("selp.u32 %x32_, 1, 0, %p;")
        self.fold(["%x32_"])

    def filled(self, registers: Sequence[str]) -> None:
        """Fills registers with the thread's words."""
        for register in registers:
            bits = register.partition("_")[0][2:]
            self.emit(f"mov.b64 %w, {{{self.word()}, {self.word()}}};")
            text = {"64": f"mov.b64 {register}, %w;", "128": f"mov.b128 {register}, {{%w, %w}};"}
            self.emit(text.get(bits, f"cvt.u{bits}.u64 {register}, %w;"))

    # What threads do.

    def access(self, each: Instruction, window: str, offset: str) -> None:
        """A load, a store or a reduction, of the thread's words."""
        operands, results = [self.address(window, each.space, offset)], list[str]()
        addresses = iter([*operands, "[%peerbar]"])
        operands.clear()
        for number, slot in enumerate(each.slots):
            if slot.is_address:
                operands.append(next(addresses))
            elif slot.condition:
                operands.append("%policy")
            else:
                registers = self.registers(slot, number)
                if slot.written:
                    results += registers
                else:
                    self.filled(registers)
                operands.append(f"{{{', '.join(registers)}}}" if slot.kind == VECTOR else registers[0])
        self.emit(f"{each.opcode} {', '.join(operands)};")
        self.fold(results)

    def loads(self) -> None:
        """Threads read anything."""
        for _ in range(1 + self.below(3)):
            window = self.windows("constant")
            root = self.pick(("ld", "ld", "ldu")) if window == "constant" else "ld"
            load = self.instruction(root, "ld", lambda each, window=window: each.touches(window))
            self.access(load, window, self.anywhere(load.bytes))

    def slots(self) -> None:
        """Each thread loads, stores and reduces into its own slot."""
        self.own()
        window = self.windows()
        for _ in range(2 + self.below(3)):
            root, meaning = self.pick((("st", "st"), ("ld", "ld"), ("atom", "atomic"), ("red", "atomic")))
            each = self.instruction(root, meaning, lambda each: self._alone(each, window))
            self.access(each, window, self.within(each.bytes))

    def _alone(self, each: Instruction, window: str) -> bool:
        """Whether one thread may do it, by the same words on any GPU."""
        space = "global" if window == "global" else "shared"
        plain = ".".join([each.words[0], space, *(word for word in each.words[1:] if word not in PLACES)])
        reduces = each.words[0] in ("atom", "red")
        several = any(slot.kind == VECTOR for slot in each.slots)
        return each.touches(window) and (
            not reduces or (bool(PLAIN.fullmatch(plain)) and (window == "global" or not several))
        )

    def contended(self) -> None:
        """All threads reduce into any elements, in an order that does not matter."""
        window = self.windows()
        each = self.instruction("red", "atomic", lambda each: self._alone(each, window) and any(
            word in COMMUTES for word in each.words) and each.words[-1] in INTEGERS)  # fmt: skip
        self.access(each, window, self.anywhere(each.bytes))

    def matrices(self) -> None:
        """`ldmatrix` from any rows, `stmatrix` to the own slots."""
        rows = [*mma.load_rows(), *mma.load_rows(), *mma.store_rows()]
        row = self.pick([row for row in rows if row.runs_on(TARGET) and row.ptx <= VERSION])
        registers = [f"%x32_0{i}" for i in range(row.registers)]
        vector = f"{{{', '.join(registers)}}}"
        if row.spelling.startswith("st"):
            self.own()
            self.filled(registers)
            self.emit(f"{row.spelling} {self.address('shared', row.space, '%mine')}, {vector};")
            return
        self.emit(f"{row.spelling} {vector}, {self.address('shared', row.space, self.anywhere(SLOT))};")
        self.fold(registers)

    # Copies.

    def cp_async(self) -> None:
        """Each thread copies elements to its own slots, and waits for them."""
        self.own()
        for _ in range(1 + self.below(2)):
            copy = self.instruction("cp", "cp.async", lambda each: "L2::cache_hint" not in each.words)
            size = next(slot.values[0] for slot in copy.slots if slot.kind == CONSTANT)
            to = self.address("shared", "shared", self.within(size))
            source = self.address(self.pick(("global", "constant")), "global", self.anywhere(size))
            operands = [to, source, str(size)]
            if copy.slots[3].type == "pred":
                self.emit(f"setp.lt.u32 %p, {self.word()}, 0x80000000;")
                operands.append(self.pick(("%p", "!%p")))
            elif self.below(2):
                self.emit(f"rem.u32 %y0, {self.word()}, {size + 1};")
                operands.append(self.pick(("%y0", str(self.below(size + 1)))))
            self.emit(f"{copy.opcode} {', '.join(operands)};", *["cp.async.commit_group;"] * self.below(2))
            self.emit(f"xor.b32 %mine, %mine, {REGION};")
        end = self.pick(("cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;",
                         "cp.async.mbarrier.arrive.noinc.shared.b64 [bars+8];"))  # fmt: skip
        self.emit(end)
        if "mbarrier" in end:
            self.wait(1)

    def pieces(self) -> list[tuple[int, int, int]]:
        """Where bulk copies begin in what they read and write, in different regions, and how many bytes they have."""
        cuts = sorted({0, REGION, *(SLOT * self.below(THREADS) for _ in range(self.below(4)))})
        to = self.below(REGIONS) * REGION
        pieces: list[tuple[int, int, int]] = []
        for begin, end in pairwise(cuts):
            source = SLOT * self.below((REGION - (end - begin)) // SLOT + 1)
            pieces.append((REGION - to + source, to + begin, end - begin))
        return pieces[: 1 + self.below(2 * len(pieces))]

    def bulk(self) -> None:
        """One thread copies or reduces pieces."""
        meaning = self.pick(("cp.async.bulk", "cp.async.bulk", "cp.reduce.async.bulk"))
        copy = self.instruction(
            "cp", meaning, lambda each: (self.remote or not _to_cluster(each)) and "f64" not in each.words
        )
        ends = [word for word in copy.words if word in ("global", "shared::cluster", "shared::cta")][:2]
        multicast, pieces = "multicast::cluster" in copy.words, self.pieces()
        self.emit(f"setp.eq.u32 %p, %t, {self.below(THREADS)}; setp.eq.and.u32 %leader, %rank, 0, %p;")
        if ends[0] != "global":
            order = self.pick(("", ".release.cta", ".release.cluster"))
            count = sum(size for *_, size in pieces)
            self.emit(f"@%p mbarrier.arrive.expect_tx{order}.shared::cta.b64 _, [bars], {count};")
        if _to_cluster(copy):
            self.cluster_barrier()
        to_peer = ends[0] != "global" and ends[1] != "global"
        source_of = {"global": self.pick(("%g", "%in")), "shared::cta": "%s"}[ends[1]]
        for source, to, size in pieces:
            wide = source_of != "%s"
            self.emit(f"add.u64 %ad2, {source_of}, {source};" if wide else f"add.u32 %b, %s, {source};")
            base = "%peer" if to_peer else "%g" if ends[0] == "global" else "%s"
            self.emit(f"add.u64 %ad, %g, {to};" if base == "%g" else f"add.u32 %a, {base}, {to};")
            operands = ["[%ad]" if base == "%g" else "[%a]", "[%ad2]" if wide else "[%b]", str(size)]
            operands += {"%peer": ["[%peerbar]"], "%s": ["[bars]"]}.get(base, [])
            operands += ["3"] * multicast + ["%policy"] * ("L2::cache_hint" in copy.words)
            self.emit(f"@{'%leader' if multicast else '%p'} {copy.opcode} {', '.join(operands)};")
        if ends[0] == "global":
            self.emit("@%p cp.async.bulk.commit_group;", "@%p cp.async.bulk.wait_group 0;")
        else:
            self.wait(0)

    def sent(self) -> None:
        """Each thread sends to its own slot of the other CTA, or reduces there."""
        root, meaning = self.pick((("st", "st.async"), ("red", "red.async")))
        send = self.instruction(root, meaning, lambda each: each.space == "shared::cluster")
        self.own()
        self.emit(f"setp.eq.u32 %p, %t, {self.below(THREADS)};")
        self.emit(f"@%p mbarrier.arrive.expect_tx.shared.b64 _, [bars], {send.bytes * THREADS};")
        self.cluster_barrier()
        self.access(send, "peer", self.within(send.bytes))
        self.wait(0)

    # Barriers.

    def wait(self, bar: int) -> None:
        """All threads wait for the phase."""
        self.labels += 1
        order = self.pick((".acquire.cluster",) if self.remote else ("", ".acquire.cta", ".acquire.cluster"))
        space = ".shared::cta" if order else self.pick((".shared", ".shared::cta"))
        self.emit(f"W{self.labels}: mbarrier.{self.pick(('try_wait', 'test_wait'))}.parity{order}{space}.b64 %done, "
                  f"[bars+{8 * bar}], {self.parity[bar]}; @!%done bra W{self.labels};")  # fmt: skip
        self.parity[bar] ^= 1

    def cluster_barrier(self) -> None:
        if self.below(4):
            release, acquire, aligned = (self.pick(("", word)) for word in (".release", ".acquire", ".aligned"))
            self.emit(f"barrier.cluster.arrive{release}{aligned}; barrier.cluster.wait{acquire}{aligned};")
            return
        self.emit("mbarrier.arrive.release.cluster.shared::cta.b64 _, [bars+16];")
        self.emit("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%peerbar+16];")
        remote, self.remote = self.remote, True
        self.wait(2)
        self.remote = remote

    def barrier(self) -> None:
        """One of all threads of a CTA."""
        kind, number, flag = self.below(5), self.below(16), self.pick(("%p", "!%p"))
        name, aligned = self.pick((("bar", ""), ("barrier", ""), ("barrier.cta", ""), ("barrier.cta", ".aligned")))
        self.emit(f"setp.lt.u32 %p, {self.word()}, {self.below(2**32)};")
        if kind == 0:
            self.emit(f"bar.sync {number};")
        elif kind == 1:
            self.emit(f"{name}.sync{aligned} {number}, {THREADS};")
        elif kind == 2:
            self.emit(f"{name}.red.popc{aligned}.u32 %x32_, {number}, {THREADS}, {flag};")
            self.fold(["%x32_"])
        elif kind == 3:
            self.emit(f"{name}.red.{self.pick(('and', 'or'))}{aligned}.pred %p, {number}, {flag};")
            self.fold_flag()
        else:
            more = self.pick((".shared", ".release.cta.shared::cta", ".release.cluster.shared::cta"))
            self.emit(f"mbarrier.arrive{more}.b64 %w, [bars+8];")
            self.wait(1)

    def states(self) -> None:
        """What a barrier in memory says of its states to the thread that alone uses it."""
        self.labels += 1
        end, count = f"S{self.labels}", 1 + self.below(9)
        self.emit(f"setp.eq.u32 %p, %t, {self.below(THREADS)}; @!%p bra {end};")
        self.emit(f"mbarrier.init.shared.b64 [bars+24], {count};")
        left = count
        for _ in range(4):
            arriving = 1 + self.below(min(left, 3))
            dropped = arriving < count and self.below(3) == 0
            name = "arrive_drop" if dropped else "arrive"
            more = ".noComplete" if arriving < left and self.below(2) else ""
            count -= arriving * dropped
            left = left - arriving or count
            self.emit(f"mbarrier.{name}{more}.release.cta.shared::cta.b64 %state, [bars+24], {arriving};")
            self.emit("mbarrier.pending_count.b64 %x32_, %state;")
            self.fold(["%x32_"])
            self.emit("mbarrier.test_wait.shared.b64 %p, [bars+24], %state;")
            self.fold_flag()
        self.emit("mbarrier.inval.shared.b64 [bars+24];", f"{end}:")

    def names(self) -> None:
        """Whose addresses they are."""
        rank = self.below(CTAS)
        self.emit("setp.eq.u32 %p, %t, 0;", self.pick((
            "getctarank.shared::cluster.u32 %x32_, %peer;", "getctarank.u64 %x32_, %there;",
            f"mapa.shared::cluster.u32 %x32_, %s, {rank}; getctarank.shared::cluster.u32 %x32_, %x32_;",
            "isspacep.shared::cluster %p, %generic; selp.u32 %x32_, 1, 0, %p;",
            f"mapa.u64 %w, %generic, {rank}; isspacep.shared::cta %p, %w; selp.u32 %x32_, 1, 0, %p;",
            "isspacep.global %p, %g; selp.u32 %x32_, 1, 0, %p;",
            "mov.u32 %x32_, %cluster_nctarank;", "mov.u32 %x32_, %cluster_ctaid.x;",
            "elect.sync %x32_|%p, 0xffffffff; selp.u32 %x32_, %x32_, 77, %p;",
        )))  # fmt: skip
        self.fold(["%x32_"])

    def phase(self) -> None:
        self.remote = self.below(3) == 0
        kinds = [self.loads, self.slots, self.bulk] * 2 + [self.bulk, self.contended, self.matrices, self.cp_async,
                 self.states, self.names, *[self.sent] * (3 * self.remote)]  # fmt: skip
        kind, barrier = self.pick(kinds), self.cluster_barrier if self.remote else self.barrier
        if kind in (self.bulk, self.sent):
            self.emit("fence.proxy.async;")
        barrier()
        kind()
        barrier()


def _to_cluster(copy: Instruction) -> bool:
    """Whether a bulk copy goes to the other CTA."""
    return "multicast" in copy.opcode or ".shared::cluster.shared" in copy.opcode


PLACES = ("global", "shared", "shared::cta", "shared::cluster", "relaxed", "acquire", "release", "acq_rel", "cta",
          "cluster", "gpu", "sys", "L2::cache_hint")  # fmt: skip
"""Words of a reduction that say where it is, and in what order."""


def kernel(case: TransferCase) -> str:
    """A kernel `k`: constant words, what threads hold and shared memory has at the end, and global memory."""
    draw = _Draw(case.number)
    for _ in range(PHASES):
        draw.phase()
    draw.emit("barrier.cluster.arrive; barrier.cluster.wait;")
    body = "\n    ".join(draw.lines)
    names = ["", *(f"{number}{i}" for number in range(5) for i in range(8))]
    declared = " ".join(f".reg .b{bits} {', '.join(f'%x{bits}_{n}' for n in names)};" for bits in (16, 32, 64, 128))
    area = REGIONS * REGION
    copies = " ".join(
        f"ld.global.b64 %w, [%ad+{8 * i}]; st.shared.b64 [%a+{8 * i}], %w;" for i in range(area // THREADS // 8)
    )
    shown = " ".join(
        f"ld.shared.b64 %w, [%a+{8 * i}]; st.global.b64 [%ad+{8 * i}], %w;" for i in range(area // THREADS // 8)
    )
    each = area // THREADS
    words = " ".join(f"ld.global.b32 %v{i}, [%ad+{4 * i}];" for i in range(WORDS))
    kept = " ".join(f"st.global.b32 [%ad+{4 * i}], %v{i};" for i in range(WORDS))
    return f""".version {VERSION[0]}.{VERSION[1]}
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 answers, .param .u64 areas)
    .reqntid {THREADS}, 1, 1 .reqnctapercluster {CTAS}, 1, 1
{{
    {declared}
    .reg .b32 %v<{WORDS}>, %y<2>, %t, %rank, %s, %peer, %peerbar, %a, %b, %o, %mine; .reg .pred %p, %done, %leader;
    .reg .b64 %in, %out, %g, %generic, %there, %ad, %ad2, %w, %w2, %policy, %state;
    .shared .align 128 .b8 bytes[{area}]; .shared .align 8 .b64 bars[4];
    mov.u32 %t, %tid.x; mov.u32 %rank, %cluster_ctarank; mov.u32 %s, bytes; xor.b32 %y0, %rank, 1;
    mapa.shared::cluster.u32 %peer, %s, %y0; mov.u32 %a, bars; mapa.shared::cluster.u32 %peerbar, %a, %y0;
    cvt.u64.u32 %w, %s; cvta.shared.u64 %generic, %w; mapa.u64 %there, %generic, %y0;
    createpolicy.fractional.L2::evict_last.b64 %policy, 1.0;
    ld.param.u64 %in, [words]; ld.param.u64 %out, [answers]; ld.param.u64 %g, [areas];
    mul.wide.u32 %w, %rank, {area}; add.u64 %g, %g, %w;
    mad.lo.u32 %y0, %rank, {THREADS}, %t; mul.wide.u32 %w, %y0, {4 * WORDS}; add.u64 %ad, %in, %w; {words}
    mul.lo.u32 %o, %t, {each}; add.u32 %a, %s, %o; cvt.u64.u32 %w, %o; add.u64 %ad, %g, %w; {copies}
    setp.eq.u32 %p, %t, 0;
    @%p mbarrier.init.shared.b64 [bars], 1; @%p mbarrier.init.shared.b64 [bars+8], {THREADS};
    @%p mbarrier.init.shared.b64 [bars+16], {CTAS * THREADS}; fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
    {body}
    mul.lo.u32 %o, %t, {each}; add.u32 %a, %s, %o; mul.wide.u32 %w, %rank, {area}; add.u64 %ad, %out, %w;
    cvt.u64.u32 %w, %o; add.u64 %ad, %ad, %w; {shown}
    mad.lo.u32 %y0, %rank, {THREADS}, %t; mul.wide.u32 %w, %y0, {4 * WORDS}; add.u64 %ad, %out, %w;
    add.u64 %ad, %ad, {CTAS * area}; {kept}
    ret;
}}
"""


def results(case: TransferCase, launch: Any) -> NDArray[np.uint32]:
    """All that a program leaves, by `launch(text, arguments, CTAs)`: shared memory of both CTAs, the words
    of all threads, and global memory."""
    random, area = Random(f"bytes {case.number}"), CTAS * REGIONS * REGION // 4
    words = random.bits((area,), 32).astype(np.uint32)
    left = np.full(area + CTAS * THREADS * WORDS, 0xDEADBEEF, np.uint32)
    areas = random.bits((area,), 32).astype(np.uint32)
    launch(kernel(case), [words, left, areas], CTAS)
    return np.concatenate([left, areas])


def answer(case: TransferCase, launch: Any) -> NDArray[np.uint32]:
    """Its sum by CRC-32."""
    return np.array([zlib.crc32(results(case, launch).tobytes())], np.uint32)
