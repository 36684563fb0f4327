"""Layout algebra: maps over F2, and conversions of fragments, each executed on a model of a warp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from samples import FULL

from warploom.dialect.isa import mma, sparse_mma
from warploom.dialect.isa.mma import MOVMATRIX
from warploom.dialect.layouts.layout import (
    AXES,
    LANES,
    Bit,
    BitMap,
    BitMapError,
    Layout,
    accumulator,
    column,
    compose,
    inverse,
    is_bijection,
    multiplicand,
    row,
    span,
)
from warploom.dialect.warp.conversion_steps import (
    COLUMNS,
    HALVES,
    ROWS,
    WHOLE,
    WORDS,
    Access,
    MoveMatrices,
    PermuteElements,
    Rename,
    Shuffles,
    Trip,
)
from warploom.dialect.warp.conversions import (
    Conversion,
    LayoutMismatchError,
    Route,
    convert,
    matrix_map,
    tiled,
)

Registers = NDArray[np.uint32]

A16 = multiplicand(16, 16, 16)
C16 = accumulator(16, 8)
WIDTHS = (1, 2, 4, 8, 16, 32, 64)


# A warp, by the text of the ISA. Registers are an array (32 lanes, registers).


def pack(layout: Layout, bits: int, seed: int = 0) -> Registers:
    """The registers of a fragment of a matrix of random elements; the same matrix for each layout of its size."""
    place = matrix_map(layout).values().reshape(-1, 32).T
    elements = np.random.default_rng(seed).integers(0, (1 << bits) - 1, place.size, np.uint64, endpoint=True)
    element = elements[place]
    spread = (element[:, :, None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)).astype(np.uint8)
    flat = spread.reshape(LANES, -1)
    return words_of(np.pad(flat, ((0, 0), (0, -flat.shape[1] % 32))))


def words_of(bits: NDArray[np.uint8]) -> Registers:
    return np.ascontiguousarray(np.packbits(bits, axis=1, bitorder="little")).view("<u4").astype(np.uint32)


def bits_of(registers: Registers) -> NDArray[np.uint8]:
    octets = np.ascontiguousarray(registers, "<u4").view(np.uint8)
    return np.unpackbits(octets.reshape(LANES, -1), axis=1, bitorder="little")


def permute(registers: Registers, step: PermuteElements) -> Registers:
    before = bits_of(registers)
    after = np.zeros((LANES, 1 << len(step.sources)), np.uint8)
    for address in range(after.shape[1]):
        used = [source for i, source in enumerate(step.sources) if address >> i & 1]
        if None not in used:
            after[:, address] = before[:, sum(1 << source for source in used if source is not None)]
    return words_of(after)


def shuffle(registers: Registers, step: Shuffles) -> Registers:
    after, lanes = np.zeros_like(registers), np.arange(LANES)
    for turn in step.rounds:
        sent = registers[lanes, turn.send]
        after[lanes, turn.keep] = sent[list(turn.source)]
    return after


def halves(registers: Registers) -> NDArray[np.uint16]:
    """8x8 matrices (register, row, column): lane l has elements 2 * (l % 4) and the next of row l // 4."""
    pairs = np.ascontiguousarray(registers.T).view("<u2").astype(np.uint16)
    return pairs.reshape(registers.shape[1], 8, 8)


def from_halves(matrices: NDArray[np.uint16]) -> Registers:
    pairs = np.ascontiguousarray(matrices, "<u2").reshape(len(matrices), 64)
    return pairs.view("<u4").astype(np.uint32).T.copy()


def through_memory(registers: Registers, step: Trip) -> Registers:
    memory = np.zeros(registers.size * 4, np.uint8)
    written = np.zeros(memory.size, bool)
    for unit, where in zip(units(registers, step.store), step.store.addresses(), strict=True):
        for item, address in zip(unit, where, strict=True):
            assert address % item.size == 0, "aligned"
            place = slice(address, address + item.size)
            assert not written[place].any(), "two stores to one place"
            memory[place], written[place] = item, True
    size = width(step.load)
    return from_units(
        np.array([[memory[at : at + size] for at in where] for where in step.load.addresses()]), step.load
    )


def width(access: Access) -> int:
    """Bytes at each address."""
    return {WHOLE: access.bits // 8, HALVES: 2, WORDS: 4}.get(access.how, 16)


def units(registers: Registers, access: Access) -> NDArray[np.uint8]:
    """What is stored, as bytes (pass, address, byte)."""
    if access.how in (ROWS, COLUMNS):
        rows = halves(registers) if access.how == ROWS else halves(registers).transpose(0, 2, 1)
        return np.ascontiguousarray(rows, "<u2").view(np.uint8)
    octets = np.ascontiguousarray(registers.T, "<u4").view(np.uint8).reshape(-1, LANES, 4)
    if access.how == HALVES:
        return octets.reshape(-1, LANES, 2, 2).transpose(0, 2, 1, 3).reshape(-1, LANES, 2)
    return octets[:, :, : width(access)]


def from_units(data: NDArray[np.uint8], access: Access) -> Registers:
    if access.how in (ROWS, COLUMNS):
        rows = np.ascontiguousarray(data).view("<u2").astype(np.uint16)
        return from_halves(rows if access.how == ROWS else rows.transpose(0, 2, 1))
    if access.how == HALVES:
        data = data.reshape(-1, 2, LANES, 2).transpose(0, 2, 1, 3).reshape(-1, LANES, 4)
    octets = np.zeros((*data.shape[:2], 4), np.uint8)
    octets[:, :, : data.shape[2]] = data
    return octets.view("<u4")[..., 0].astype(np.uint32).T.copy()


def execute(conversion: Route, registers: Registers) -> Registers:
    for step in conversion.steps:
        match step:
            case Rename():
                registers = registers[:, step.sources]
            case PermuteElements():
                registers = permute(registers, step)
            case Shuffles():
                registers = shuffle(registers, step)
            case MoveMatrices():
                assert step.registers == registers.shape[1]
                registers = from_halves(halves(registers).transpose(0, 2, 1))
            case Trip():
                registers = through_memory(registers, step)
    return registers


def check(conversion: Conversion) -> None:
    """Every way gives the target's registers, and the cheapest comes first."""
    before, after = (pack(layout, conversion.element_bits) for layout in (conversion.source, conversion.target))
    for plan in conversion.routes:
        assert np.array_equal(execute(plan, before), after), f"{conversion}\n{plan}"
    costs = [plan.cost for plan in conversion.routes]
    assert costs == sorted(costs)


# Maps


@st.composite
def bit_maps(draw: st.DrawFn, square: bool = False) -> BitMap:
    width = draw(st.integers(0, 6))
    count = width if square else draw(st.integers(0, 6))
    images = draw(st.lists(st.integers(0, (1 << width) - 1), min_size=count, max_size=count))
    return BitMap(tuple(images), width)


@given(bit_maps())
def test_a_map_is_linear_and_its_values_are_listed(bits: BitMap) -> None:
    values = bits.values().tolist()
    assert values == [bits(i) for i in range(1 << len(bits.images))]
    assert all(bits(a ^ b) == bits(a) ^ bits(b) for a, b in product(range(len(values)), repeat=2))
    assert len(set(values)) == 1 << bits.rank


@given(bit_maps(square=True))
def test_bijections_are_the_maps_with_an_inverse(bits: BitMap) -> None:
    assert is_bijection(bits) == (sorted(bits.values()) == list(range(1 << bits.width)))
    if is_bijection(bits):
        assert compose(inverse(bits), bits) == compose(bits, inverse(bits)) == BitMap.identity(bits.width)
    else:
        with pytest.raises(BitMapError, match=r"from \d bits to \d bits of rank \d has no inverse"):
            inverse(bits)


@given(bit_maps(), st.data())
def test_composition_is_application_in_turn(inner: BitMap, data: st.DataObject) -> None:
    images = data.draw(st.lists(st.integers(0, 15), min_size=inner.width, max_size=inner.width))
    outer = BitMap(tuple(images), 4)
    assert compose(outer, inner).values().tolist() == [outer(v) for v in inner.values().tolist()]


def test_maps_that_do_not_fit() -> None:
    with pytest.raises(BitMapError, match="expected a map of 2 bits to apply to 2 bits, got one of 3"):
        compose(BitMap.identity(3), BitMap.identity(2))
    with pytest.raises(BitMapError, match="bit 1: expected an image of 1 bits, got 0b10"):
        BitMap((1, 2), 1)
    with pytest.raises(BitMapError, match=r"expected each of the bits 0 to 1 once, got \(0, 0\)"):
        BitMap.permutation((0, 0))


def test_permutations_know_where_bits_go() -> None:
    assert BitMap.permutation((2, 0, 1)).places() == (2, 0, 1)
    assert BitMap((1, 3), 2).places() is None
    assert span([3, 5, 6]) == 2


# Layouts


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any permutation of the bits of a matrix of at least 32 elements."""
    rows = draw(st.integers(0, 5))
    columns = draw(st.integers(max(0, 5 - rows), 5))
    bits = draw(st.permutations([*map(row, range(rows)), *map(column, range(columns))]))
    return Layout(tuple(bits[:5]), tuple(bits[5:]))


def shuffled(layout: Layout, draw: Callable[..., list[Bit]]) -> Layout:
    bits = draw(st.permutations([*layout.lane, *layout.element]))
    return Layout(tuple(bits[:5]), tuple(bits[5:]))


@given(layouts())
def test_positions_and_inverse_are_those_of_the_layout(layout: Layout) -> None:
    assert is_bijection(matrix_map(layout))
    place = layout.positions()
    numbers = place[..., 0] * layout.columns + place[..., 1]
    assert np.array_equal(matrix_map(layout).values().reshape(-1, 32).T, numbers)
    back = inverse(matrix_map(layout))
    assert all(back(r * layout.columns + c) == lane + LANES * e for (r, c), (lane, e) in layout.inverse().items())


def test_tiles_follow_each_other_row_by_row() -> None:
    layout = tiled(C16, down=2, across=4)
    assert np.array_equal(layout.positions(), C16.positions(32, 32))
    with pytest.raises(LayoutMismatchError, match="powers of two, got 3 down and 1 across"):
        tiled(C16, down=3)


# Conversions


def fragments() -> Iterator[tuple[Layout, int]]:
    """Every fragment layout of the rows, with the width of its elements."""
    for form in (*mma.rows(), *sparse_mma.rows()):
        for role in "abcd":
            bits = form.container_bits(role) if role in "ab" else form.element(role).bits
            yield form.layout(role), bits


@cache
def pairs() -> tuple[tuple[Layout, Layout, int], ...]:
    """All pairs of different layouts of one matrix with elements of one width."""
    layouts = dict.fromkeys(fragments())
    return tuple(
        (a, b, bits)
        for (a, bits), (b, other) in product(layouts, layouts)
        if bits == other and a != b and all(a.extent(axis) == b.extent(axis) for axis in AXES)
    )


@pytest.mark.parametrize(("source", "target", "bits"), pairs(), ids=str)
def test_fragments_of_instructions_become_each_other(source: Layout, target: Layout, bits: int) -> None:
    check(convert(source, target, bits))


@settings(max_examples=150 if FULL else 60)
@given(layouts(), st.sampled_from(WIDTHS), st.data())
def test_any_layout_becomes_any_other(source: Layout, bits: int, data: st.DataObject) -> None:
    check(convert(source, shuffled(source, data.draw), bits))


@settings(max_examples=30)
@given(layouts(), layouts(), st.sampled_from(WIDTHS))
def test_a_conversion_undoes_its_opposite(one: Layout, other: Layout, bits: int) -> None:
    if any(one.extent(axis) != other.extent(axis) for axis in "rc"):
        return
    there, back = convert(one, other, bits), convert(other, one, bits)
    registers = pack(one, bits)
    assert np.array_equal(execute(back.best, execute(there.best, registers)), registers)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_the_accumulator_is_half_of_the_next_operand_a(name: str) -> None:
    """In D = A * B, then E = D * F: two accumulators of m16n8k16 side by side are A of m16n8k16, without a shuffle."""
    form = next(r for r in mma.rows() if r.shape == (16, 8, 16) and r.a.name == name and r.c.name == "f32")
    accumulators, operand = tiled(form.layout("d"), across=2), form.layout("a")
    conversion = convert(accumulators, operand, form.a.bits)
    assert conversion.best.steps == ()
    assert conversion.best.is_free
    # one accumulator is the first half of the elements of A, and of its columns
    half = form.layout("d")
    assert np.array_equal(operand.positions()[:, : half.elements], half.positions())
    # its elements of 32 bits become pairs of 16 bits in each lane: cvt.rn.f16x2.f32 takes two neighbours
    assert half.element[0] == operand.element[0] == column(0)


def test_the_accumulator_of_8_bit_products_needs_shuffles() -> None:
    conversion = convert(tiled(C16, across=4), multiplicand(16, 32, 8), 8)
    assert conversion.best.shuffles == 4
    assert not conversion.best.is_free
    assert all(plan.shuffles or any(isinstance(step, Trip) for step in plan.steps) for plan in conversion.routes)


def test_a_transposed_operand_is_a_movmatrix() -> None:
    conversion = convert(C16, multiplicand(8, 16, 16).transposed(), 16)
    assert conversion.best.steps == (MoveMatrices(2),)
    assert conversion.best.sm == MOVMATRIX.sm
    stores = [step.opcodes[0] for plan in conversion.routes for step in plan.steps if isinstance(step, Trip)]
    assert stores == ["stmatrix.sync.aligned.m8n8.x2.shared.b16", "st.shared.b32", "st.shared.b32"]


def test_renaming_registers_is_free() -> None:
    swapped = Layout(A16.lane, (A16.element[0], A16.element[2], A16.element[1]))
    best = convert(A16, swapped, 16).best
    assert best.steps == (Rename((0, 2, 1, 3)),)
    assert best.is_free
    assert str(best) == "take registers 0, 2, 1, 3 in this order: no instruction"


def test_neighbours_within_a_register_are_permuted() -> None:
    swapped = Layout(A16.lane, (A16.element[1], A16.element[0], A16.element[2]))
    assert str(convert(A16, swapped, 16).best) == "permute the elements of each lane: about 4 prmt"
    assert "shf and lop3" in str(convert(A16, swapped, 4).best)


def test_one_bit_exchanged_with_a_lane_takes_half_the_shuffles() -> None:
    """The register that stays is not shuffled."""
    other = Layout((*C16.lane[:4], C16.element[1]), (C16.element[0], C16.lane[4]))
    best = convert(C16, other, 32).best
    assert best.shuffles == 2
    assert str(best) == (
        "exchange registers between lanes with 2 shfl.sync (lane bit 4 <-> element bit 1); "
        "8 selp pick what to send and where to keep it"
    )


def test_two_bits_exchanged_with_lanes_take_three_quarters_of_the_shuffles() -> None:
    """Whichever bit is exchanged with which: in one round of four every lane keeps what it has."""
    layout = Layout.parse("r0 r1 r2 r3 r4 | c0 c1 c2")
    for exchanged in ("r0 r1 r2 c1 c2 | c0 r3 r4", "r0 r1 r2 c2 c1 | c0 r4 r3", "r0 r1 r2 c2 c1 | c0 r3 r4"):
        conversion = convert(layout, Layout.parse(exchanged), 32)
        check(conversion)
        assert next(plan.shuffles for plan in conversion.routes if plan.shuffles) == 6


def test_only_a_transposition_is_a_movmatrix() -> None:
    """Lane bits that arrive in another order are not what the instruction does."""
    layout = Layout.parse("c1 c2 r0 r1 r2 | c0")
    for arriving, moves in (("r1 r2 c0 c1 c2 | r0", 1), ("r2 r1 c0 c1 c2 | r0", 0), ("r1 r2 c0 c2 c1 | r0", 0)):
        conversion = convert(layout, Layout.parse(arriving), 16)
        check(conversion)
        assert sum(isinstance(step, MoveMatrices) for plan in conversion.routes for step in plan.steps) == moves


@given(layouts(), st.sampled_from(WIDTHS), st.data())
def test_words_never_meet_in_a_bank(source: Layout, bits: int, data: st.DataObject) -> None:
    for conversion in convert(source, shuffled(source, data.draw), bits).routes:
        trips = [
            step for step in conversion.steps if isinstance(step, Trip) and step.store.how == step.load.how == WHOLE
        ]
        assert all(trip.store.conflict == trip.load.conflict == 1 for trip in trips)


def test_swizzles_avoid_bank_conflicts() -> None:
    trips = [step for a, b, bits in pairs() for conversion in convert(a, b, bits).routes for step in conversion.steps
             if isinstance(step, Trip)]  # fmt: skip
    assert trips
    assert all(trip.store.conflict == trip.load.conflict == 1 for trip in trips)
    for trip in trips:
        for access in (trip.store, trip.load):
            banks = [worst(where, width(access)) for where in access.addresses()]
            assert access.conflict == max(banks)


def worst(addresses: tuple[int, ...], size: int) -> int:
    """How many different words of one bank the lanes, or rows, of one pass want."""
    words = {(address + byte) // 4 for address in addresses for byte in range(size)}
    return max(sum(word % 32 == bank for word in words) for bank in range(32))


def test_conversions_that_make_no_sense() -> None:
    with pytest.raises(LayoutMismatchError, match="two layouts of one matrix, got 16x8 and 16x16"):
        convert(C16, A16, 16)
    with pytest.raises(LayoutMismatchError, match="elements of 1, 2, 4, 8, 16, 32 or 64 bits, got 6"):
        convert(A16, A16, 6)
    four = Layout.parse("r0 r1 q0 q1 r2 | c0 c1", "rcq")
    with pytest.raises(LayoutMismatchError, match="got 8x4, 4 by product and 8x16"):
        convert(four, multiplicand(8, 16, 8), 16)


def test_a_conversion_explains_itself() -> None:
    lines = str(convert(C16, C16, 32)).split("\n")
    assert lines == [f"{C16}  ->  {C16}, 32-bit elements", "1. the fragments are the same: no instruction"]
    assert matrix_map(C16).places() == (1, 2, 3, 4, 5, 0, 6)
