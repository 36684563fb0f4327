"""Arithmetic folded while it is emitted: the statements compute what Python does, and the claims are true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from door_values import ORDERS
from hypothesis import given
from hypothesis import strategies as st
from statements import Lanes, instructions, keep, name, run

from warploom.dialect.isa.row import target
from warploom.dialect.ptx.text.syntax import Symbol
from warploom.passes.to_ptx.emitter import Emitter, IndexValue, VirtualRegister
from warploom.passes.to_ptx.scalars import WIDE_OFFSET, Scalars

THREADS = 256
LIMIT = 1 << 31
BASE = 0x7000_0000_1000


@dataclass
class Node:
    """What the emitter has for an expression, and what it is for each thread."""

    value: IndexValue
    expected: Lanes


class Expressions:
    """Expressions over the thread's number, the CTA's number and loop counters, all below 2^31."""

    def __init__(self, draw: st.DataObject) -> None:
        self.draw, self.emitter = draw.draw, Emitter(target("sm_80"))
        self.scalars = Scalars(self.emitter)
        thread = np.arange(THREADS, dtype=np.int64)
        cta = self.draw(st.integers(0, 1 << 16))
        self.names: dict[str, Lanes | int] = {"%tid.x": thread, "%ctaid.x": cta}
        self.nodes = [
            Node(self.scalars.special("%tid.x", THREADS), thread),
            Node(self.scalars.special("%ctaid.x", LIMIT), np.full(THREADS, cta)),
            self.counter(),
        ]

    def counter(self) -> Node:
        """A register whose value is known to be a multiple of something."""
        divisor, turns = self.draw(st.sampled_from([1, 8, 32, 48, 64])), self.draw(st.integers(0, 100))
        register = self.emitter.register("b32", divisor=divisor)
        self.emitter.emit("mov.b32", register, divisor * turns)
        return Node(register, np.full(THREADS, divisor * turns))

    def pick(self) -> Node:
        """An expression made so far, or a constant."""
        if self.draw(st.booleans()):
            return self.draw(st.sampled_from(self.nodes))
        number = self.number()
        return Node(number, np.full(THREADS, number))

    def number(self) -> int:
        return self.draw(st.one_of(st.integers(0, 300), st.sampled_from([0, 1, 2, 8, 32, 64])))

    def power(self) -> int:
        return 1 << self.draw(st.integers(0, 8))

    def step(self) -> None:
        """Adds one more expression, if it stays in range."""
        build = self.draw(
            st.sampled_from(
                [self.add, self.subtract, self.sum, self.multiply, self.quotient, self.remainder, self.mask,
                 self.bits, self.xor, self.minimum, self.select]
            )
        )  # fmt: skip
        node = build()
        if node.expected.min() >= 0 and node.expected.max() < LIMIT:
            self.nodes.append(node)

    def add(self) -> Node:
        a, b = self.pick(), self.pick()
        return Node(self.scalars.add(a.value, b.value), a.expected + b.expected)

    def sum(self) -> Node:
        parts = [self.pick() for _ in range(self.draw(st.integers(1, 4)))]
        return Node(
            self.scalars.sum(*(p.value for p in parts)), sum((p.expected for p in parts[1:]), parts[0].expected)
        )

    def subtract(self) -> Node:
        a, b = self.pick(), self.pick()
        return Node(self.scalars.subtract(a.value, b.value), a.expected - b.expected)

    def multiply(self) -> Node:
        a, b = self.pick(), self.pick()
        return Node(self.scalars.multiply(a.value, b.value), a.expected * b.expected)

    def quotient(self) -> Node:
        a, by = self.pick(), self.draw(st.one_of(st.integers(1, 100), st.just(self.power())))
        return Node(self.scalars.quotient(a.value, by), a.expected // by)

    def remainder(self) -> Node:
        a, by = self.pick(), self.draw(st.one_of(st.integers(1, 100), st.just(self.power())))
        return Node(self.scalars.remainder(a.value, by), a.expected % by)

    def mask(self) -> Node:
        a, bits = self.pick(), self.power() - 1
        return Node(self.scalars.mask(a.value, bits), a.expected & bits)

    def bits(self) -> Node:
        a = self.pick()
        start, count, to = (self.draw(st.integers(0, 6)) for _ in range(3))
        return Node(self.scalars.bits(a.value, start, count, to), (a.expected >> start & ((1 << count) - 1)) << to)

    def xor(self) -> Node:
        a, b = self.pick(), self.pick()
        return Node(self.scalars.xor(a.value, b.value), a.expected ^ b.expected)

    def minimum(self) -> Node:
        a, b = self.pick(), self.pick()
        return Node(self.scalars.minimum(a.value, b.value), np.minimum(a.expected, b.expected))

    def compare(self) -> tuple[VirtualRegister | bool, Lanes]:
        name = self.draw(st.sampled_from([*ORDERS]))
        a, b = self.pick(), self.pick()
        return self.scalars.compare(name, a.value, b.value), ORDERS[name](a.expected, b.expected)

    def select(self) -> Node:
        (p, expected_p), (q, expected_q), a, b = self.compare(), self.compare(), self.pick(), self.pick()
        both = self.scalars.both(p, q)
        expected = np.where(expected_p & expected_q, a.expected, b.expected)
        return Node(self.scalars.select(both, a.value, b.value), expected)

    def check(self) -> None:
        """Every expression against its statements, and what its register claims against its values."""
        registers = [n for n in self.nodes if isinstance(n.value, VirtualRegister)]
        keep(self.emitter, *(n.value for n in registers if isinstance(n.value, VirtualRegister)))
        for node, got in zip(registers, run(self.emitter, THREADS, self.names), strict=True):
            assert np.array_equal(got, node.expected)
            assert isinstance(node.value, VirtualRegister)
            assert not np.any(node.expected % node.value.divisor)
            assert node.value.bound is None or node.expected.max() < node.value.bound
        for node in self.nodes:
            if isinstance(node.value, int):
                assert np.all(node.expected == node.value)


@given(st.data())
def test_statements_compute_what_python_does(data: st.DataObject) -> None:
    expressions = Expressions(data)
    for _ in range(data.draw(st.integers(1, 12))):
        expressions.step()
    expressions.check()


@given(st.data())
def test_addresses_are_64_bit_sums(data: st.DataObject) -> None:
    expressions = Expressions(data)
    for _ in range(data.draw(st.integers(0, 6))):
        expressions.step()
    emitter, scalars = expressions.emitter, expressions.scalars
    base = emitter.register("b64")
    emitter.emit("mov.b64", base, Symbol("base"))
    scales = st.one_of(st.integers(0, 1 << 20), st.sampled_from([2, 4, 1280, 1 << 26]))
    terms = [(expressions.pick(), data.draw(scales)) for _ in range(data.draw(st.integers(0, 5)))]
    register, offset = scalars.address(base, [(node.value, scale) for node, scale in terms])
    assert abs(offset) < WIDE_OFFSET
    keep(emitter, register)
    got = run(emitter, THREADS, {**expressions.names, "base": BASE})[-1]
    expected = sum((node.expected * scale for node, scale in terms), np.zeros(THREADS, np.int64))
    assert np.array_equal(got + offset, BASE + expected)


@pytest.fixture
def scalars() -> Scalars:
    return Scalars(Emitter(target("sm_80")))


def emitted(scalars: Scalars, *values: IndexValue) -> list[str]:
    """The opcodes it took."""
    keep(scalars.emitter, *(v for v in values if isinstance(v, VirtualRegister)))
    return [name(op) for op in instructions(scalars.emitter) if name(op) != "keep"]


def test_powers_of_two_take_no_multiplication_or_division(scalars: Scalars) -> None:
    tid = scalars.special("%tid.x", THREADS)
    values = [scalars.multiply(tid, 8), scalars.quotient(tid, 8), scalars.remainder(tid, 8)]
    assert emitted(scalars, *values) == ["mov.u32", "shl.b32", "shr.u32", "and.b32"]


def test_other_numbers_do(scalars: Scalars) -> None:
    tid = scalars.special("%tid.x", THREADS)
    values = [scalars.multiply(tid, 6), scalars.quotient(tid, 6), scalars.remainder(tid, 6)]
    assert emitted(scalars, *values) == ["mov.u32", "mul.lo.s32", "div.u32", "rem.u32"]


def test_nothing_is_emitted_for_what_changes_nothing(scalars: Scalars) -> None:
    tid = scalars.special("%tid.x", THREADS)
    same = [scalars.add(tid, 0), scalars.add(0, tid), scalars.subtract(tid, 0), scalars.multiply(tid, 1),
            scalars.quotient(tid, 1), scalars.mask(tid, THREADS - 1), scalars.shift_right(tid, 0), scalars.xor(0, tid),
            scalars.remainder(tid, THREADS), scalars.sum(tid), scalars.select(True, tid, 0)]  # fmt: skip
    assert all(value is tid for value in same)
    zero = [scalars.multiply(tid, 0), scalars.remainder(tid, 1), scalars.shift_right(tid, 8),
            scalars.quotient(tid, THREADS), scalars.mask(scalars.multiply(tid, 16), 15),
            scalars.bits(tid, 9, 3, 2)]  # fmt: skip
    assert zero == [0] * len(zero)


def test_sums_with_constants_collapse(scalars: Scalars) -> None:
    tid = scalars.special("%tid.x", THREADS)
    far = scalars.add(scalars.add(tid, 5), 7)
    assert isinstance(far, VirtualRegister)
    assert (far.base, far.offset) == (tid, 12)
    assert scalars.add(far, -12) is tid
    assert emitted(scalars, far) == ["mov.u32", "add.s32"]


def test_comparisons_with_a_number_first_are_mirrored(scalars: Scalars) -> None:
    tid = scalars.special("%tid.x", THREADS)
    names = ("lt", "le", "gt", "ge", "eq", "ne")
    values = [scalars.compare(name, 5, tid) for name in names]
    mirrored = [f"setp.{name}.s32" for name in ("gt", "ge", "lt", "le", "eq", "ne")]
    assert emitted(scalars, *(v for v in values if not isinstance(v, bool))) == ["mov.u32", *mirrored]


def test_predicates_that_are_known(scalars: Scalars) -> None:
    predicate = scalars.compare("lt", scalars.special("%tid.x", THREADS), 5)
    assert scalars.compare("lt", 3, 5) is True
    assert scalars.compare("ge", 3, 5) is False
    assert scalars.both(True, predicate) is scalars.both(predicate, True) is predicate
    assert scalars.both(False, predicate) is scalars.both(predicate, False) is False
    assert scalars.both(predicate, predicate) is predicate
    assert scalars.select(False, 1, 2) == 2


def test_what_changes_in_inner_loops_is_added_last(scalars: Scalars) -> None:
    emitter = scalars.emitter
    tid, cta = scalars.special("%tid.x", THREADS), scalars.special("%ctaid.x", LIMIT)
    with emitter.loop():
        counter = emitter.register("b32")
        emitter.emit("mov.b32", counter, 0)
        total = scalars.sum(counter, tid, cta)
        keep(emitter, *([total] if isinstance(total, VirtualRegister) else []))
    assert [name(op) for op in instructions(emitter)] == [
        *("mov.u32", "mov.u32", "add.s32"),
        *("mov.b32", "add.s32", "keep"),
    ]


def test_addresses_add_outside_the_loop_what_they_can(scalars: Scalars) -> None:
    emitter = scalars.emitter
    tid = scalars.special("%tid.x", THREADS)
    base = emitter.register("b64")
    emitter.emit("mov.b64", base, Symbol("base"))
    with emitter.loop():
        counter = emitter.register("b32")
        emitter.emit("mov.b32", counter, 0)
        register, offset = scalars.address(base, [(counter, 2), (tid, 1280), (3, 2)])
        keep(emitter, register)
    assert offset == 6
    assert [name(op) for op in instructions(emitter)] == [
        *("mov.u32", "mov.b64", "mul.wide.s32", "add.s64"),
        *("mov.b32", "mul.wide.s32", "add.s64", "keep"),
    ]
