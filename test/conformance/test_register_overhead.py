"""Each row of what ptxas takes of registers, against ptxas: its evidence spills without the row and not with it.

One row a run; `make conformance` takes all.
"""

from __future__ import annotations

import os

import pytest
from products import LIES, Product, Types
from samples import FULL

from warploom.dialect.isa.types import BY_MLIR_NAME
from warploom.passes.schedule import in_registers, resources, warpgroup
from warploom.passes.schedule.resources import ROWS, Overhead
from warploom.runtime import Kernel, compile
from warploom.runtime.cuda import ptxas

pytestmark = pytest.mark.skipif(
    ptxas.find() is None and not os.environ.get("CI"), reason="ptxas is not installed (extra: test)"
)

PROVEN = [row for row in ROWS if row.evidence]
CHOSEN = PROVEN if FULL else PROVEN[:1]

CONVERTED = """func.func @f(%A: memref<{m}x{k}x{a}>, %B: memref<{n}x{k}x{b}>, %D: memref<{m}x{n}x{c}>) {{
  %W = warp.stored %B as {stored} : memref<{n}x{k}x{b}>
  warp.matmul {a} x {a} %A, %W init 0.0 : {c} into %D
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      : memref<{m}x{k}x{a}>, !warp.operand<memref<{n}x{k}x{b}>>, memref<{m}x{n}x{c}>
  return
}}"""
"""A product with weights that are converted for it, their rows along k."""


def named(evidence: str) -> tuple[Product, str]:
    """The product and the target of `f16 f16 f32, gelu by erf, A B, 100x100x100, stages=3 on sm_80`."""
    name, target = evidence.split(" on ")
    kinds, *words = name.split(", ")
    asked = dict(word.split("=") for word in words if "=" in word)
    *form, lies, size = words[: len(words) - len(asked)]
    assert lies in LIES
    m, n, k = map(int, size.split("x"))
    elements, *accumulate = kinds.split(" in ")
    return Product(Types(*elements.split(), *accumulate), ", ".join(form), lies, (m, n, k), asked), target


def compiled(product: Product, target: str) -> Kernel:
    """The kernel of a product at its default schedule, but for what it asks."""
    if product.form != "converted":
        return product.compile(target)
    (m, n, k), types = product.size, product.types
    stored = BY_MLIR_NAME[types.b].name
    return compile(CONVERTED.format(m=m, n=n, k=k, a=types.a, b=types.b, c=types.c, stored=stored), target)


def spills(evidence: str) -> int:
    """Bytes that the kernels of a product spill, at its default schedule but for what it asks."""
    product, target = named(evidence)
    return sum(used.spills + used.stack for used in ptxas.assemble(compiled(product, target).ptx, target).values())


@pytest.mark.parametrize("row", CHOSEN, ids=lambda row: row.evidence)
def test_the_evidence_spills_without_the_row_alone(row: Overhead, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(named(row.evidence)[0]) == row.evidence.split(" on ")[0]
    assert spills(row.evidence) == 0
    monkeypatch.setattr(resources, "ROWS", tuple(other for other in ROWS if other is not row))
    assert spills(row.evidence) > 0


def test_one_row_alone_has_no_evidence() -> None:
    assert [(row.kind, row.registers) for row in ROWS if not row.evidence] == [("addresses", 56)]


@pytest.mark.parametrize("evidence", resources.GROUP_EVIDENCE)
def test_tiles_of_warpgroups_that_spill_are_left_out(evidence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spills(evidence) == 0
    monkeypatch.setattr(warpgroup, "group_spills", lambda product, rows, columns, padded: False)
    assert spills(evidence) > 0


@pytest.mark.parametrize("evidence", resources.REGISTER_EVIDENCE)
def test_products_with_an_operand_in_registers_that_spill_are_left_out(
    evidence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spills(evidence) == 0
    monkeypatch.setattr(in_registers, "register_spills", lambda product, role, wide: False)
    assert spills(evidence) > 0
