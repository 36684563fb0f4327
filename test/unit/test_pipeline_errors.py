"""When a module is verified: after each pass, or after parts of a pipeline; what errors tell then."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import ModuleOp, i64
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from warploom.passes.diagnostics import LocatedError, remark, remarks
from warploom.passes.pipeline import VERIFIES_EACH, lower
from warploom.passes.universe import WARPLOOM_UNIVERSE, make_context, parse_mlir

TEXT = """func.func @f(%a: i32, %b: i32) -> i32 {
  %one = arith.constant 1 : i32
  %x = arith.addi %a, %b : i32
  %y = arith.muli %x, %one : i32
  return %y : i32
}"""


def module() -> ModuleOp:
    return parse_mlir(make_context(), TEXT)


def function(made: ModuleOp) -> func.FuncOp:
    function = next(op for op in made.walk() if isinstance(op, func.FuncOp))
    assert isinstance(function, func.FuncOp)
    return function


def another_type(made: ModuleOp) -> None:
    Rewriter.replace_value_with_new_type(function(made).body.block.args[0], i64)


class Breaks(ModulePass):
    """Leaves a sum of two types."""

    name = "breaks"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        another_type(op)


class Looks(ModulePass):
    """Changes nothing."""

    name = "looks"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        list(op.walk())


class Stumbles(ModulePass):
    """Takes for granted that both operands of a sum have one type."""

    name = "stumbles"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        remark(function(op), self.name, "looked")
        for add in op.walk():
            if isinstance(add, arith.AddiOp) and add.lhs.type != add.rhs.type:
                raise KeyError(str(add.lhs.type))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> None:
    for made in (Breaks, Looks, Stumbles):
        monkeypatch.setitem(WARPLOOM_UNIVERSE.all_passes, made.name, lambda made=made: made)


def told(pipeline: str) -> str:
    with pytest.raises(LocatedError) as error:
        lower(module(), make_context(), pipeline)
    return str(error.value)


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("pipeline", ["looks,breaks", "breaks,looks,stumbles", "breaks,warp-pipeline,stumbles"])
def test_an_error_is_that_of_the_first_pass_at_fault(pipeline: str) -> None:
    message = told(pipeline)
    assert message.startswith("<string>:3:3: error: arith.addi: ")
    token = VERIFIES_EACH.set(True)
    try:
        assert told(pipeline) == message
    finally:
        VERIFIES_EACH.reset(token)


@pytest.mark.usefixtures("passes")
def test_remarks_before_an_error_are_made_once() -> None:
    with remarks() as said, pytest.raises(LocatedError):
        lower(module(), make_context(), "stumbles,breaks")
    assert [line.rpartition(": ")[2] for line in said] == ["looked"]
