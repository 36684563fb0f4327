"""The rows of `mma` and `ldmatrix` against ptxas: accepted where they claim, refused one step below."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from warploom.dialect.isa import mma
from warploom.dialect.isa.mma import LDMATRIX, LoadMatrix, Mma
from warploom.dialect.isa.row import NEWEST, TARGETS, Target, Version
from warploom.runtime.base.errors import AssemblerError
from warploom.runtime.cuda import ptxas

pytestmark = pytest.mark.skipif(
    ptxas.find() is None and not os.environ.get("CI"), reason="ptxas is not installed (extra: test)"
)

Row = Mma | LoadMatrix
ROWS: tuple[Row, ...] = (*mma.ROWS, *LDMATRIX)

PLAIN = sorted((t for t in TARGETS.values() if not t.suffix and t.sm >= 75), key=lambda t: t.sm)
"""The targets that CUDA 13 assembles for."""

VERSIONS: tuple[Version, ...] = (
    (6, 3),
    (6, 4),
    (6, 5),
    (7, 0),
    (7, 1),
    (7, 2),
    (7, 4),
    (7, 8),
    (8, 0),
    (8, 6),
    (9, 0),
    NEWEST,
)


def lowest(row: Row) -> Target:
    """The lowest target that the row claims."""
    return next(t for t in PLAIN if row.runs_on(t))


def kernel(row: Row, target: Target, version: Version) -> str:
    """A module whose one kernel executes the row's instruction."""
    instruction = _mma(row) if isinstance(row, Mma) else _ldmatrix(row)
    return f"""
.version {version[0]}.{version[1]}
.target {target}
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .shared .align 16 .b8 tile[1024];
    .reg .b32 %r<8>;
    .reg .b32 %d<8>;
    .reg .f32 %f<8>;
    {instruction}
    ret;
}}
"""


def _vector(prefix: str, count: int) -> str:
    return "{" + ", ".join(f"{prefix}{i}" for i in range(count)) + "}"


def _mma(row: Mma) -> str:
    prefixes = {"a": "%r", "b": "%r", "c": "%f" if row.c.name == "f32" else "%d"}
    a, b, c = (_vector(prefixes[role], row.registers(role)) for role in "abc")
    return f"{row.spelling} {c}, {a}, {b}, {c};"


def _ldmatrix(row: LoadMatrix) -> str:
    return f"{row.spelling} {_vector('%r', row.count)}, [tile];"


def problem(row: Row, target: Target, version: Version) -> str | None:
    """What ptxas says about the row's instruction; None if it takes it."""
    try:
        ptxas.assemble(kernel(row, target, version), str(target))
    except AssemblerError as error:
        return str(error)
    return None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.spelling)
def test_a_row_assembles_for_what_it_claims(row: Row) -> None:
    target = lowest(row)
    assert problem(row, target, max(row.ptx, target.ptx)) is None


def below() -> Iterator[tuple[Row, Target, Version]]:
    """Each row on the next lower target, and in the PTX version before its first, where there are such."""
    for row in ROWS:
        target = lowest(row)
        lower = [t for t in PLAIN if t.sm < target.sm]
        if lower:
            yield row, lower[-1], max(row.ptx, lower[-1].ptx)
        earlier = [v for v in VERSIONS if target.ptx <= v < row.ptx]
        if earlier:
            yield row, target, earlier[-1]


@pytest.mark.parametrize(
    ("row", "target", "version"),
    [pytest.param(*case, id=f"{case[0].spelling}-{case[1]}-{case[2][0]}.{case[2][1]}") for case in below()],
)
def test_a_row_is_refused_below(row: Row, target: Target, version: Version) -> None:
    message = problem(row, target, version)
    assert message is not None
    assert "error" in message
    assert "Parsing error" not in message


def test_every_row_has_something_below_it() -> None:
    assert {row.spelling for row, *_ in below()} == {row.spelling for row in ROWS}
