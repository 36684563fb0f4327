"""Schedules: their invariants, their text, the options that replace single choices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError

from warploom.dialect.isa.form import Shape
from warploom.dialect.isa.mma import ROWS
from warploom.dialect.schedule import ALWAYS, FIELDS, SWIZZLES, Schedule, ScheduleError, parse_options
from warploom.dialect.warp.attributes import PartialScheduleAttr, ScheduleAttr
from warploom.passes.schedule.needs import slice_bytes
from warploom.passes.universe import make_context

PLAIN = Schedule(cta=(128, 128, 64), warp=(64, 64), mma=Shape(16, 8, 16), stages=3)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Any schedule that does not contradict itself."""
    shape = draw(st.sampled_from([row.shape for row in ROWS]))
    warps = draw(st.tuples(st.integers(1, 8), st.integers(1, 4)))
    tiles = draw(st.tuples(*[st.integers(1, 6)] * 3))
    m, n, k = (step * count for step, count in zip(shape, tiles, strict=True))
    return Schedule(
        cta=(m * warps[0], n * warps[1], k),
        warp=(m, n),
        mma=shape,
        stages=draw(st.integers(1, 9)),
        swizzle=draw(st.sampled_from(SWIZZLES)),
        group=draw(st.integers(1, 100)),
        accumulate=draw(st.sampled_from(["f16", "f32"])),
    ).with_fields(pack=draw(st.sampled_from(FIELDS["pack"].one_of)))


def parse_attribute(text: str) -> Schedule:
    attribute = Parser(make_context(), text).parse_attribute()
    assert isinstance(attribute, ScheduleAttr)
    return attribute.data


def without(text: str, *names: str) -> str:
    """The fields of a schedule's text less some."""
    return ", ".join(f for f in text.split(", ") if f.split(" = ")[0] not in names)


@given(schedules())
def test_the_attribute_reads_what_it_prints(schedule: Schedule) -> None:
    attribute = ScheduleAttr(schedule)
    assert str(attribute) == f"#warp.schedule<{schedule}>"
    assert parse_attribute(str(attribute)) == schedule
    assert parse_attribute(str(attribute).replace(", ", " , ").replace(" = ", "=")) == schedule


@given(schedules(), st.randoms())
def test_fields_may_come_in_any_order(schedule: Schedule, random: Any) -> None:
    words = str(schedule).split(", ")
    random.shuffle(words)
    assert parse_attribute(f"#warp.schedule<{', '.join(words)}>") == schedule


@given(schedules())
def test_options_read_what_is_printed(schedule: Schedule) -> None:
    text = dict(word.split(" = ") for word in str(schedule).split(", "))
    values = {name: schedule[name] for name in FIELDS}
    assert parse_options(values) == values
    assert parse_options(text) == {name: values[name] for name in text}
    assert Schedule.of(text) == Schedule.parse(str(schedule)) == PLAIN.with_fields(**values) == schedule
    assert Schedule.of(schedule.options()) == schedule
    assert tuple(schedule.options()) == tuple(FIELDS)


@pytest.mark.parametrize("text", ["", "cta = 64x64x32", "no schedule", "stages"])
def test_text_that_lacks_fields_is_no_schedule(text: str) -> None:
    with pytest.raises(ScheduleError, match=f"^'{text}' is no schedule: the schedule lacks "):
        Schedule.parse(text)


def test_text() -> None:
    assert str(PLAIN) == (
        "cta = 128x128x64, warp = 64x64, mma = m16n8k16, stages = 3, swizzle = 128, group = 8, accumulate = f32"
    )


def test_rare_fields_are_printed_where_they_differ_from_their_default() -> None:
    assert [word.split(" = ")[0] for word in str(PLAIN).split(", ")] == list(ALWAYS)
    assert str(PLAIN.with_fields(pack="b")) == f"{PLAIN}, pack = b"
    assert parse_attribute(f"#warp.schedule<{PLAIN}, sliced_k = 2>") == PLAIN.with_fields(sliced_k=2)


def test_fields_are_found_and_replaced_by_name() -> None:
    changed = PLAIN.with_fields(stages=4, prefetch=2, group=3, cta=(64, 64, 32), warp=(32, 32))
    assert (changed.stages, changed.prefetch, changed.group) == (4, 2, 3)
    assert (changed.cta, changed["warp"], changed["swizzle"]) == ((64, 64, 32), (32, 32), 128)
    assert {name for name in FIELDS if changed[name] != PLAIN[name]} == {"stages", "prefetch", "group", "cta", "warp"}
    for find in (lambda: PLAIN["depth"], lambda: PLAIN.with_fields(depth=3)):
        with pytest.raises(ScheduleError, match=r"^unknown schedule option 'depth'; known: cta, "):
            find()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "x"}, "order must be one of serpentine, rows, got x"),
        ({"sync": ""}, "sync must be one of barrier, mbarrier, got nothing"),
        ({"in_registers": "ab"}, "in_registers must be one of none, a, b, got ab"),
        ({"add_c": 3}, "add_c must be one of auto, first, last, got 3"),
        ({"accumulate": "6x"}, "schedule option accumulate: expected a word, got '6x'"),
    ],
)
def test_words_that_are_none_of_the_field_are_refused_before_a_pass_reads_them(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_options(options)
    assert str(caught.value) == message


def test_a_schedule_checks_itself() -> None:
    with pytest.raises(ScheduleError, match=r"^sync must be one of barrier, mbarrier, got none$"):
        PLAIN.with_fields(sync="none")
    with pytest.raises(ScheduleError, match=r"^unroll must be a multiple of the 3 stages, got 4$"):
        PLAIN.with_fields(unroll=4)


def test_slices_multiply_warps_and_add_shared_memory() -> None:
    sliced = PLAIN.with_fields(sliced_k=2)
    assert (PLAIN.warps, PLAIN.threads, slice_bytes(PLAIN)) == (4, 128, 0)
    assert (sliced.warps, sliced.threads, slice_bytes(sliced)) == (8, 256, 128 * 128 * 4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cta": "64,64,32"}, {"cta": (64, 64, 32)}),
        ({"cta": "64x64x32"}, {"cta": (64, 64, 32)}),
        ({"cta": [64, 64, 32]}, {"cta": (64, 64, 32)}),
        ({"warp": (32, "16")}, {"warp": (32, 16)}),
        ({"mma": "m16n8k8"}, {"mma": Shape(16, 8, 8)}),
        ({"mma": Shape(16, 8, 8)}, {"mma": Shape(16, 8, 8)}),
        ({"stages": "2", "group": 4}, {"stages": 2, "group": 4}),
        ({"stages": (2,)}, {"stages": 2}),
        ({"accumulate": "f16"}, {"accumulate": "f16"}),
        ({}, {}),
    ],
)
def test_options(options: Mapping[str, object], expected: Mapping[str, object]) -> None:
    assert parse_options(options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 3}, f"unknown schedule option 'depth'; known: {', '.join(FIELDS)}"),
        ({"stagez": 3}, f"unknown schedule option 'stagez', did you mean 'stages'? known: {', '.join(FIELDS)}"),
        ({"cta": "64,64"}, "schedule option cta: expected 3 numbers, got '64,64'"),
        ({"cta": (64, 64)}, "schedule option cta: expected 3 numbers, got '64x64'"),
        ({"cta": 64}, "schedule option cta: expected 3 numbers, got '64'"),
        ({"warp": "64,a"}, "schedule option warp: expected 2 numbers, got '64,a'"),
        ({"warp": ""}, "schedule option warp: expected 2 numbers, got ''"),
        ({"warp": (64, 64, 64)}, "schedule option warp: expected 2 numbers, got '64x64x64'"),
        ({"stages": "two"}, "schedule option stages: expected one number, got 'two'"),
        ({"stages": 2.5}, "schedule option stages: expected one number, got '2.5'"),
        ({"swizzle": None}, "schedule option swizzle: expected one number, got 'None'"),
        ({"mma": "16x8x16"}, "schedule option mma: expected a shape such as m16n8k16, got '16x8x16'"),
    ],
)
def test_options_that_cannot_be_read(options: Mapping[str, object], message: str) -> None:
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        parse_options(options)


CONTRADICTIONS: list[tuple[dict[str, object], str]] = [
    ({"cta": (0, 128, 64)}, "cta must be numbers of at least 1, got 0x128x64"),
    ({"warp": (64, -8)}, "warp must be numbers of at least 1, got 64x-8"),
    ({"warp": (48, 64)}, "warp must divide cta, got 48 against 128 along M: cta = 128x128x64, warp = 48x64"),
    ({"warp": (64, 24)}, "warp must divide cta, got 24 against 128 along N: cta = 128x128x64, warp = 64x24"),
    (
        {"warp": (8, 64)},
        "cta and warp must be multiples of mma = m16n8k16, got 8 along M "
        "(the next multiple is 16): cta = 128x128x64, warp = 8x64",
    ),
    (
        {"warp": (64, 4)},
        "cta and warp must be multiples of mma = m16n8k16, got 4 along N "
        "(the next multiple is 8): cta = 128x128x64, warp = 64x4",
    ),
    (
        {"cta": (128, 128, 40)},
        "cta and warp must be multiples of mma = m16n8k16, got 40 along K "
        "(the next multiple is 48): cta = 128x128x40, warp = 64x64",
    ),
    (
        {"warp": (16, 16)},
        "a CTA has at most 1024 threads, 64 warps take 2048; enlarge warp or reduce cta: "
        "cta = 128x128x64, warp = 16x16",
    ),
    ({"stages": 0}, "stages must be 1 to 1024, got 0"),
    ({"swizzle": 48}, "swizzle must be one of 16, 32, 64, 128, got 48"),
    ({"group": 0}, "group must be 1 to 2147483647, got 0"),
]


@pytest.mark.parametrize(("change", "message"), CONTRADICTIONS)
def test_contradictions(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        PLAIN.with_fields(**change)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{PLAIN}, depth = 3", "unknown schedule option 'depth'"),
        (str(PLAIN).replace("128x128x64", "128x128"), "schedule option cta: expected 3 numbers"),
        (
            str(PLAIN).replace("m16n8k16", "m16n8"),
            "schedule option mma: expected a shape such as m16n8k16, got 'm16n8'",
        ),
        (str(PLAIN).replace("= 3", "= many"), "schedule option stages: expected one number, got 'many'"),
        (str(PLAIN).replace("= 3", "= 0"), "stages must be 1 to 1024, got 0"),
        (
            str(PLAIN).replace("= 64x64", "= 48x64"),
            "warp must divide cta, got 48 against 128 along M",
        ),
        (str(PLAIN).replace("= 64x64", "= ?x64"), "warp must be numbers of at least 1"),
        ("cta 128x128x64", "Expected '='"),
    ],
)
def test_text_that_is_no_schedule(text: str, message: str) -> None:
    with pytest.raises(ParseError) as raised:
        parse_attribute(f"#warp.schedule<{text}>")
    assert message in str(raised.value)


@pytest.mark.parametrize("text", [without(str(PLAIN), "stages"), without(str(PLAIN), "cta", "group"), ""])
def test_schedule_in_part_is_printed_as_it_is(text: str) -> None:
    attribute = Parser(make_context(), f"#warp.schedule<{text}>").parse_attribute()
    assert isinstance(attribute, PartialScheduleAttr)
    assert str(attribute) == f"#warp.schedule<{text}>"
