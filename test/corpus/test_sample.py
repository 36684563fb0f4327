"""A sample of the corpus on the interpreter, with every check; `make corpus` runs all of it."""

from __future__ import annotations

import pytest
from corpus.case import Case
from corpus.cases import CASES
from corpus.harness import arguments, judge, launch, load
from corpus.store import ARCHIVE, PACKED, Store

from warploom.dialect.isa.tensor_product import SharedDescriptor
from warploom.runtime import check_ptx, load_ptx
from warploom.runtime.interp import InterpreterError

STORE = Store(ARCHIVE)


def home(case: Case) -> str:
    """The target that a case is run for here."""
    return "sm_80" if case.sm <= 80 else "sm_90a" if case.sm <= 90 else "sm_100a"


def test_the_corpus_is_of_the_size_that_was_promised() -> None:
    kernels = [case for case in CASES if STORE.find(case.file, case.name, home(case))]
    assert kernels == CASES
    assert len({c.name for c in CASES}) == len(CASES)
    assert sum(case.file != "triton" for case in CASES) >= 120
    assert sum(case.file == "triton" for case in CASES) >= 40


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", [case for case in CASES if case.sample], ids=lambda case: case.name)
def test_a_kernel_is_right(case: Case) -> None:
    module = load(STORE, case, home(case))
    assert module is not None
    verdict = judge(module, case)
    assert verdict.expected, str(verdict)


@pytest.mark.parametrize("target", PACKED[:2])
def test_a_judge_sees_a_kernel_that_does_something_else(target: str) -> None:
    """The sum of one array instead of two."""
    case = next(case for case in CASES if case.name == "t_add")
    text = STORE.texts[f"t_add.{target}.ptx"].replace("add.f32", "sub.f32")
    assert judge(load_ptx(text), case).kind == "wrong"


@pytest.mark.parametrize(
    ("stride", "swizzle", "message"),
    [
        (1024, 64, "reads by a swizzle of 64 bytes what the tensor copy at line 115 writes by one of 128"),
        (512, 128, "its stride byte offset of 512 goes from row 0, byte 0 to row 4, byte 0 of what the tensor copy at"),
    ],
)
def test_a_descriptor_that_does_not_fit_the_copy(stride: int, swizzle: int, message: str) -> None:
    """Of products in tensor memory."""
    case = next(case for case in CASES if case.name == "g_tensor_matmul")
    text, high = STORE.texts["g_tensor_matmul.sm_100a.ptx"], "mov.b32 \t%r16, {};"
    right, wrong = (SharedDescriptor(0, 64 * 16, *how).encode() >> 32 for how in ((1024, 128), (stride, swizzle)))
    assert high.format(right) in text
    module = load_ptx(text.replace(high.format(right), high.format(wrong)))
    with pytest.raises(InterpreterError, match=message):
        launch(module, case, arguments(module, case)[0], "interp", checks=("tensor", "strict"))


@pytest.mark.parametrize("name", ["warp.sm_80.ptx", "blocks.sm_80.ptx", "t_matmul.sm_80.ptx", "t_sort.sm_90a.ptx",
                                  "g_tensor_roles.sm_100a.ptx"])  # fmt: skip
def test_the_checker_has_nothing_to_say(name: str) -> None:
    assert check_ptx(STORE.texts[name]) == []
