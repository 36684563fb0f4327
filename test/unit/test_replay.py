"""The interpreter's answers against those of silicon, word for word.

`test/gpu/capture.py` recorded the words; `test/captured.py` and the modules beside it draw the operands again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import captured
import captured_functions
import captured_memory
import captured_pixels
import captured_programs
import captured_scalars
import captured_tensors
import captured_transfers
import captured_warpgroups
import numpy as np
import pytest
from capture_replay import POISON, interpreted, warpgroup_answers
from captured import KINDS, LANES, Case
from captured_functions import FunctionCase
from captured_memory import MemoryCase
from captured_programs import ProgramCase
from captured_scalars import ScalarCase
from captured_tensors import TensorCase
from captured_transfers import TransferCase
from captured_warpgroups import WarpgroupCase
from numpy.typing import NDArray

from warploom.dialect.isa.row import target
from warploom.runtime import load_ptx
from warploom.runtime.interp import InterpreterError, arithmetic
from warploom.runtime.numerics.product import ROWS, Row

WORDS = Path(__file__).parent.parent / "data" / "words"
GROUPS, TENSORS = (WORDS / name / "sm_90a.npz" for name in ("warpgroups", "tensors"))
SETS = ("pixels", "reductions", "offsets", "further", "functions", "scalars", "programs", "transfers")
LATER = {name: WORDS / name / "sm_90a.npz" for name in (SETS)}
"""Recordings by `test/gpu/capture.py --set NAME`."""


@cache
def recording(path: Path) -> Any:
    """The header, and the answers by name."""
    return np.load(path)


def recorded() -> Iterator[tuple[Path, Case | MemoryCase]]:
    """Every recorded instruction."""
    for path in sorted(WORDS.glob("**/*.npz")):
        if path in (GROUPS, TENSORS, *LATER.values()):
            continue
        arch = target(path.stem)
        sets = {"limits": captured.limit_cases, "memory": captured_memory.cases}
        yield from ((path, case) for case in sets.get(path.parent.name, captured.cases)(arch))


def replayed(case: Case | MemoryCase, name: str, answers: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """What the interpreter answers."""
    count = len(answers)
    if isinstance(case, MemoryCase):
        words, text = captured_memory.inputs(case, count), captured_memory.kernel(case, "k")
    else:
        words, text = captured.inputs(case, count), captured.kernel(case, "k")
    got = np.full(answers.shape, POISON, np.uint32)
    program = load_ptx(captured.module([text], target(name)))
    program.launch("k", (count, 1, 1), (LANES, 1, 1), [np.ascontiguousarray(words), got], device="interp")
    return got


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("path", "case"), list(recorded()), ids=lambda x: x.name if isinstance(x, Case | MemoryCase) else x.parent.name
)
def test_every_word_is_the_silicons(path: Path, case: Case | MemoryCase) -> None:
    data = recording(path)
    expected = data[case.name]
    wrong = replayed(case, json.loads(str(data["header"]))["target"], expected) != expected
    by_kind = {kind: int(wrong[i :: len(KINDS)].sum()) for i, kind in enumerate(KINDS)}
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} words differ: {by_kind}"


SAMPLE = 4
"""Of the products of 256 columns, one in so many is computed here; the recording has all."""


def warpgroup_cases() -> list[WarpgroupCase]:
    cases = list(captured_warpgroups.cases(target(GROUPS.stem)))
    large = [case for case in cases if case.row.shape.n == 256]
    return [case for case in cases if case.row.shape.n < 256] + large[::SAMPLE]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", warpgroup_cases(), ids=lambda case: case.name)
def test_every_word_of_a_warpgroup_is_the_silicons(case: WarpgroupCase) -> None:
    expected = recording(GROUPS)[case.name]
    count = len(expected)
    wrong = (warpgroup_answers(case, count) != expected).reshape(count, -1).any(axis=1)
    assert not wrong.any(), f"kinds that differ: {[KINDS[i % len(KINDS)] for i in np.flatnonzero(wrong)]}"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", list(captured_tensors.cases()), ids=lambda case: case.name)
def test_every_byte_of_a_tensor_copy_is_the_silicons(case: TensorCase) -> None:
    assert np.array_equal(captured_tensors.answer(case, interpreted), recording(TENSORS)[case.name])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", list(captured_pixels.cases()), ids=lambda case: case.name)
def test_every_byte_of_a_copy_of_pixels_is_the_silicons(case: TensorCase) -> None:
    assert np.array_equal(captured_tensors.answer(case, interpreted), recording(LATER["pixels"])[case.name])


@pytest.mark.parametrize("case", list(captured_tensors.reductions()), ids=lambda case: case.name)
def test_every_byte_of_a_tensor_reduction_is_the_silicons(case: TensorCase) -> None:
    assert np.array_equal(captured_tensors.answer(case, interpreted), recording(LATER["reductions"])[case.name])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", list(captured_functions.cases()), ids=lambda case: case.name)
def test_every_word_of_an_approximate_function_is_the_silicons(case: FunctionCase) -> None:
    wrong = captured_functions.answer(case, interpreted) != recording(LATER["functions"])[case.name]
    assert not wrong.any(), [hex(x) for x in captured_functions.arguments(case)[:, wrong].reshape(-1)[:8]]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", list(captured_scalars.cases(target("sm_90a"))), ids=lambda case: case.name)
def test_every_word_of_scalar_instructions_is_the_silicons(case: ScalarCase) -> None:
    wrong = captured_scalars.answer(case, interpreted) != recording(LATER["scalars"])[case.name]
    assert not wrong.any(), [case.statements[i].name for i in np.flatnonzero(wrong)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", list(captured_programs.cases()), ids=lambda case: case.name)
def test_every_word_of_a_drawn_program_is_the_silicons(case: ProgramCase) -> None:
    assert captured_programs.answer(case, interpreted) == recording(LATER["programs"])[case.name]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", list(captured_transfers.cases()), ids=lambda case: case.name)
def test_every_word_of_drawn_transfers_is_the_silicons(case: TransferCase) -> None:
    """With all checks, which have nothing to say."""
    checked = partial(interpreted, checks="all")
    assert captured_transfers.answer(case, checked) == recording(LATER["transfers"])[case.name]


@pytest.mark.parametrize("number", captured_transfers.NOT_ATOMIC)
def test_drawn_transfers_that_silicon_does_not_repeat_are_told(number: int) -> None:
    with pytest.raises(InterpreterError, match="by a load and a store"):
        captured_transfers.answer(TransferCase(number), partial(interpreted, checks="all"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["offsets", "further"])
def test_every_word_of_later_warpgroups_is_the_silicons(name: str) -> None:
    sets = {"offsets": captured_warpgroups.offset_cases, "further": captured_warpgroups.further_cases}
    data = recording(LATER[name])
    wrong = [
        case.name for case in sets[name](target(GROUPS.stem))
        if not np.array_equal(warpgroup_answers(case, len(data[case.name])), data[case.name])
    ]  # fmt: skip
    assert not wrong


def test_every_warpgroup_case_is_recorded() -> None:
    assert {case.name for case in captured_warpgroups.cases(target(GROUPS.stem))} == {*recording(GROUPS)} - {"header"}


def test_everything_that_the_target_has_is_recorded() -> None:
    recordings = list(recorded())
    assert len(recordings) == 262 + 242 + 175
    assert all(case.name in recording(path) for path, case in recordings)


def test_what_is_called_confirmed_is_replayed() -> None:
    """A row of parameters that says that hardware agreed has words to show for it, and the other way round."""
    shown = {arithmetic(path.stem, case.row) for path, case in recorded() if isinstance(case.row, Row)}
    shown |= {arithmetic(GROUPS.stem, case.row) for case in warpgroup_cases()}
    assert shown
    assert all(core.confirmed for core in shown)
    assert {core for core in ROWS if core.confirmed} == shown
