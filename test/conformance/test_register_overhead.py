"""Each row of what ptxas takes of registers, against ptxas: its evidence spills without the row and not with it.

One row a run; `make conformance` takes all.
"""

from __future__ import annotations

import os

import pytest
from products import LIES, Product, Types
from samples import FULL

from warploom.passes.schedule import register_overhead, warpgroup
from warploom.passes.schedule.register_overhead import ROWS, Overhead
from warploom.runtime.cuda import ptxas

pytestmark = pytest.mark.skipif(
    ptxas.find() is None and not os.environ.get("CI"), reason="ptxas is not installed (extra: test)"
)

PROVEN = [row for row in ROWS if row.evidence]
CHOSEN = PROVEN if FULL else PROVEN[:1]


def named(evidence: str) -> tuple[Product, str]:
    """The product and the target of `f16 f16 f32, gelu by erf, A B, 100x100x100 on sm_80`."""
    name, target = evidence.split(" on ")
    kinds, _, rest = name.partition(", ")
    form, lies, size = rest.rsplit(", ", 2)
    assert lies in LIES
    m, n, k = map(int, size.split("x"))
    words = kinds.split(" in ")
    return Product(Types(*words[0].split(), *words[1:]), form, lies, (m, n, k)), target


def spills(evidence: str) -> int:
    """Bytes that the kernels of a product spill, at its default schedule."""
    product, target = named(evidence)
    return sum(used.spills + used.stack for used in ptxas.assemble(product.compile(target).ptx, target).values())


@pytest.mark.parametrize("row", CHOSEN, ids=lambda row: row.evidence)
def test_the_evidence_spills_without_the_row_alone(row: Overhead, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(named(row.evidence)[0]) == row.evidence.split(" on ")[0]
    assert spills(row.evidence) == 0
    monkeypatch.setattr(register_overhead, "ROWS", tuple(other for other in ROWS if other is not row))
    assert spills(row.evidence) > 0


def test_rows_without_evidence_are_few() -> None:
    """Those for which none was found among the products of `products.py` whose schedule they change; integers that are
    converted are not among them."""
    assert len(PROVEN) >= len(ROWS) - UNPROVEN


UNPROVEN = 4


@pytest.mark.parametrize("evidence", register_overhead.GROUP_EVIDENCE)
def test_tiles_of_warpgroups_that_spill_are_left_out(evidence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spills(evidence) == 0
    monkeypatch.setattr(warpgroup, "group_spills", lambda product, rows, columns, padded: False)
    assert spills(evidence) > 0
