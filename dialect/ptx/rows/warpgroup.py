"""What orders the products of warpgroups, whose rows are in `dialect.isa.wgmma`. Source: PTX ISA 9.7.15.7."""

from __future__ import annotations

from ...isa.wgmma import SM_90A
from .grammar import Row, row


def _row(name: str, operands: str, section: str) -> Row:
    return row(f"{name}.sync.aligned", operands, section, ptx=(8, 0), sm=90, meaning=name, only=SM_90A)


ROWS: tuple[Row, ...] = (
    _row("wgmma.fence", "", "9.7.15.7.1"),
    _row("wgmma.commit_group", "", "9.7.15.7.2"),
    _row("wgmma.wait_group", "n:imm(0..9223372036854775807)", "9.7.15.7.3"),
)
