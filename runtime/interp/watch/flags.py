"""Weak reads of what other threads wrote, under the memory model of PTX: whether they can read older values.

Threads tell each other by words that they access strongly, and by barriers. In executions in which those words are read
as in this run, each weak read of a word that another thread writes must read what it read here. One word stands for all
that the same instructions access.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ....dialect.ptx.instructions import Traits
from ...numerics.floats import Array
from ..machine.events import Look, MemoryAccess, Selection
from ..machine.flow import CLUSTER_BARRIER
from .findings import Check
from .order_graph import MemoryEvent, MemoryModel, ThreadPlace

WORD = 4
RECORDED = 1 << 20
"""Accesses to words that are kept."""

EVENTS = 96
"""Events of one execution that is tried."""

CANDIDATES = 200
"""Executions that are tried for one word."""

POLLS = 1 << 12
"""Accesses to the words of one execution, reads again and again among them."""

_NO_ACCESS = ("fence", "barrier")

_SAMPLES = 8
"""Words that are looked at."""

_SCOPES = {"cta": "cta", "cluster": "cluster", "gpu": "gpu", "sys": "sys", "gl": "gpu"}


class _Record(NamedTuple):
    """Accesses of one instruction by threads: words (a buffer's number and the word's), and the bits of their bytes."""

    pc: int
    kind: str
    threads: Array
    words: Array
    values: Array
    parts: Array


class _Deed(NamedTuple):
    """An event of a thread: an access to a word, a fence (word -1), or a barrier (-2) with its number `group`."""

    at: int
    pc: int
    thread: int
    word: int
    kind: str
    value: int | None = None
    group: int = -1


class Flags(Check):
    """Keeps the accesses, fences and barriers of the CTAs in flight, and tries executions when they are done."""

    name = "all-orders"

    def begun(self) -> None:
        traits = [d.traits for d in self.kernel.code]
        self.active = any(_tells(t) for t in traits) and not any(t.on_mbarrier for t in traits)
        self.local = self.state.memory.local.buffer, self.state.memory.param.buffer
        self.buffers: dict[int, int] = {}
        self.records: list[tuple[int, _Record]] = []
        self.size = self.now = self.group = 0
        self.came: defaultdict[int, list[tuple[int, int, Array]]] = defaultdict(list)

    def watch(self, pc: int) -> Look | None:
        if not (self.active and self.kernel.code[pc].traits.is_fence):
            return None

        def look(sel: Selection) -> None:
            self.now += 1
            if sel.count <= RECORDED:
                nowhere = np.zeros(sel.count, np.int64)
                self.records.append((self.now, _Record(pc, "fence", sel.threads.copy(), nowhere, nowhere, nowhere)))

        return look

    def access(self, access: MemoryAccess) -> None:
        if not self.active or not access.start.size or any(access.buffer is one for one in self.local):
            return
        each = -(-access.width // WORD)
        self.size += access.start.size * each
        if self.size > RECORDED:
            self.active = False
            self._bound(f"more than {RECORDED} accesses")
            return
        self.now += 1
        number = self.buffers.setdefault(id(access.buffer), len(self.buffers))
        words = (number << 40) + (access.start[:, None] // WORD + np.arange(each)).reshape(-1)
        values = np.full(words.size, -1, np.int64)
        if access.values is not None and access.width % WORD == 0:
            values = np.ascontiguousarray(access.values).view(np.uint32).reshape(-1).astype(np.int64)
        threads = np.repeat(access.threads, each)
        bytes_of = (1 << min(access.width, WORD)) - 1
        parts = np.repeat(bytes_of << access.start % WORD, each)
        self.records.append((self.now, _Record(access.pc, access.kind, threads, words, values, parts)))

    def come(self, pc: int, number: int, expected: int, threads: Array) -> None:
        if self.active:
            self.now += 1
            self.came[number].append((self.now, pc, threads.copy()))

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        if not self.active or not arrived.any():
            return
        self.now += 1
        self.group += self.state.geometry.ctas
        each = self.state.geometry.warps_per_cta * (
            self.state.geometry.cluster_size if number == CLUSTER_BARRIER else 1
        )
        for at, pc, mask in self.came[number]:
            here = np.flatnonzero(mask & arrived)
            mask &= ~arrived
            groups = self.group + here % self.state.warps // each
            self.records.append((at, _Record(pc, "barrier", here, groups, waiting[here].astype(np.int64), groups)))
        self.came[number] = [one for one in self.came[number] if one[2].any()]

    # Executions

    def end(self) -> None:
        if not self.active or not self.records:
            return
        self.active = False
        flags, samples = self._words()
        if not samples:
            return
        for word in samples:
            self._try(word, flags)

    def _words(self) -> tuple[Array, list[int]]:
        """The words that threads use as flags; of the words that are read weakly, one of each kind."""
        accesses = [r for _, r in self.records if r.kind not in _NO_ACCESS]
        if not accesses:
            return np.zeros(0, np.int64), []
        words, number = np.unique(np.concatenate([r.words for r in accesses]), return_inverse=True)
        threads = np.concatenate([r.threads for r in accesses])
        pcs = np.concatenate([np.full(r.words.size, r.pc) for r in accesses])
        strong = np.array([d.traits.strength > 0 for d in self.kernel.code])
        writes = np.concatenate([np.full(r.words.size, r.kind != "load") for r in accesses])
        last = np.zeros(words.size, np.int64)
        last[number] = threads
        shared, written, told = (np.zeros(words.size, np.bool_) for _ in range(3))
        shared[number[last[number] != threads]] = True
        written[number[writes]] = True
        told[number[strong[pcs]]] = True
        flag = shared & written & told
        tells = np.isin(threads, threads[flag[number]])
        of: defaultdict[int, set[tuple[int, bool]]] = defaultdict(set)
        some = (shared & written & ~told)[number]
        for one, pc, tell in np.unique(np.stack([number[some], pcs[some], tells[some]]), axis=1).T.tolist():
            of[one].add((pc, bool(tell)))
        kinds = {tuple(sorted(words_)): one for one, words_ in of.items()} if flag.any() else {}
        return words[flag], [int(words[one]) for one in list(kinds.values())[:_SAMPLES]]

    def _try(self, word: int, flags: Array) -> None:
        near = np.append(self._near(word, flags), word)
        accesses = sum(int(np.isin(r.words, near).sum()) for _, r in self.records if r.kind not in _NO_ACCESS)
        if accesses > POLLS:
            self._bound(f"{accesses} accesses, more than {POLLS}")
            return
        written = [r.parts[r.words == word] for _, r in self.records if r.kind not in (*_NO_ACCESS, "load")]
        for part in np.unique(np.concatenate(written)).tolist():  # of a word whose halves threads write, each half
            self._of_part(word, part, near)

    def _of_part(self, word: int, part: int, near: Array) -> None:
        deeds = list(self._deeds(near, word, part))
        if len(deeds) > EVENTS:
            self._bound(f"{len(deeds)} events, more than {EVENTS}")
            return
        model, read, numbered = self._model(deeds, word)
        if model.candidates > CANDIDATES:
            self._bound(f"{model.candidates} executions, more than {CANDIDATES}")
            return
        older = {(r, w) for reads in model.outcomes() for r, w in reads.items() if r in read and w != read[r][1]}
        for r, w in sorted(older):
            deed, before, source = read[r][0], read[r][1], model.events[w].place.thread
            one, other = numbered.get(before), numbered.get(w)
            if one is not None and other is not None and one.value is not None and one.value == other.value:
                continue
            what = "the value at the beginning" if source < 0 else f"what {self._who(other, deed)} writes"
            here = "the value at the beginning" if one is None else f"what {self._who(one, deed)} writes"
            text = (
                f"can read {what}, and not {here} as in this run: no release and acquire patterns of scopes that have "
                "both threads, and no barrier, order them"
            )
            self.report(deed.pc, text, deed.thread, about=("older", None if one is None else one.pc))

    def _near(self, word: int, flags: Array) -> Array:
        """The flags that can order accesses of the CTAs that access a word."""
        records = [r for _, r in self.records if r.kind not in _NO_ACCESS]
        words = np.concatenate([r.words for r in records])
        ctas = np.concatenate([r.threads for r in records]) % self.state.warps // self.state.geometry.warps_per_cta
        near, last, some = np.array([word]), 0, np.isin(words, flags)
        while near.size > last:
            last = near.size
            mine = np.unique(ctas[np.isin(words, near)])
            near = np.union1d(near, words[some & np.isin(ctas, mine)])
        return near

    def _deeds(self, wanted: Array, word: int, part: int) -> Iterator[_Deed]:
        """Accesses of threads to words, to `part` of one, and what is between; of repeated reads only the last."""
        accesses = [
            (at, r, np.isin(r.words, wanted) & ((r.words != word) | (r.parts & part > 0)))
            for at, r in self.records if r.kind not in _NO_ACCESS
        ]  # fmt: skip
        threads = np.unique(np.concatenate([r.threads[which] for _, r, which in accesses]))
        others = [(at, r, np.isin(r.threads, threads)) for at, r in self.records if r.kind in _NO_ACCESS]
        deeds: list[_Deed] = []
        for at, r, which in [*accesses, *others]:
            columns = (column[which].tolist() for column in (r.threads, r.words, r.values))
            for t, w, v in zip(*columns, strict=True):
                access = _Deed(at, r.pc, t, w, r.kind, None if v < 0 else v)
                deeds.append(_Deed(at, r.pc, t, -1, r.kind, v, w) if r.kind in _NO_ACCESS else access)
        deeds.sort(key=lambda deed: deed.at)
        last: dict[int, int] = {}
        kept: list[_Deed | None] = []
        for deed in deeds:
            before = kept[last[deed.thread]] if deed.thread in last else None
            if before is not None and deed.kind == "load" and (before.pc, before.word) == (deed.pc, deed.word):
                kept[last[deed.thread]] = None
            last[deed.thread] = len(kept)
            kept.append(deed)
        return (deed for deed in kept if deed is not None)

    def _model(
        self, deeds: list[_Deed], word: int
    ) -> tuple[MemoryModel, dict[int, tuple[_Deed, int]], dict[int, _Deed]]:
        """The events of deeds in the order of threads; the weak reads of a word, each with what it reads here; and the
        deeds by the numbers of their events."""
        locations = sorted({deed.word for deed in deeds if deed.word >= 0})
        number = {word: i for i, word in enumerate(locations)}
        events = [MemoryEvent(ThreadPlace(-1, -1, -1), i, writes=True) for i in range(len(locations))]
        writes: dict[int, list[int]] = {i: [i] for i in range(len(locations))}
        values: dict[int, int | None] = {}
        order = sorted(range(len(deeds)), key=lambda i: (deeds[i].thread, i))
        position = {i: len(events) + n for n, i in enumerate(order)}
        made: dict[int, MemoryEvent] = {}
        read: dict[int, tuple[_Deed, int]] = {}
        for i, deed in enumerate(deeds):
            event = self._event(deed, number.get(deed.word))
            if event.reads and event.location is not None:
                source = writes[event.location][-1]
                if deed.word == word:
                    read[position[i]] = deed, source
                else:
                    value = values.get(source)
                    same = (w for w in writes[event.location] if value is not None and values.get(w) == value)
                    event = replace(event, chosen=tuple({source, *same}))
            if event.writes and event.location is not None:
                writes[event.location].append(position[i])
                values[position[i]] = deed.value
            made[i] = event
        events += [made[i] for i in order]
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for i, deed in enumerate(deeds):
            if deed.kind == "barrier":
                groups[deed.group].append(i)
        pairs = [
            (position[a], position[b]) for group in groups.values() for a in group for b in group
            if a != b and deeds[b].value
        ]  # fmt: skip
        settled = {n: w for n, w in writes.items() if locations[n] != word}
        return MemoryModel(events, pairs, settled), read, {position[i]: deed for i, deed in enumerate(deeds)}

    def _event(self, deed: _Deed, location: int | None) -> MemoryEvent:
        state, traits = self.state, self.kernel.code[deed.pc].traits
        cta = deed.thread % state.warps // state.geometry.warps_per_cta
        place = ThreadPlace(deed.thread, cta, cta // state.geometry.cluster_size)
        if deed.kind == "barrier":
            return MemoryEvent(place)
        scope = next((_SCOPES[q] for q in ("cta", "cluster", "gpu", "sys", "gl") if q in traits.qualifiers), "")
        if deed.kind == "fence":
            if traits.name == "fence.proxy":
                return MemoryEvent(place)
            acquires, releases = "release" not in traits.qualifiers, "acquire" not in traits.qualifiers
            sequential = traits.root == "membar" or "sc" in traits.qualifiers
            return MemoryEvent(place, None, False, False, scope or "sys", acquires, releases, sequential)
        scope = (scope or ("sys" if "volatile" in traits.qualifiers else "gpu")) if traits.strength else ""
        reads, writes = deed.kind in ("load", "atomic"), deed.kind != "load"
        return MemoryEvent(place, location, reads, writes, scope, traits.acquires, traits.releases)

    # Telling

    def _who(self, deed: _Deed | None, other: _Deed) -> str:
        if deed is None:
            return "another thread"
        return f"{self.name_of(deed.thread, other.thread)} (line {self.line(deed.pc)})"

    def _bound(self, what: str) -> None:
        self.bound(f"words through which threads tell each other are not looked at in all orders: {what}", "flags")


def _tells(traits: Traits) -> bool:
    """Whether threads tell each other something by it, barriers aside."""
    return traits.strength > 0 and traits.root in ("ld", "st", "atom", "red") and not traits.on_mbarrier
