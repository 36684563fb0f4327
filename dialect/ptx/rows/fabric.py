"""Rows of `fabric`: copies, reductions and atomics at logical endpoints of other GPUs. Source: PTX ISA 9.3, 9.7.10."""

from __future__ import annotations

from collections.abc import Iterator

from ...isa.row import Specific, Version
from .grammar import PatternRow, row

_DONE = "mbarrier::complete_tx::16B.mbarrier::report::fabric"
_READ = "mbarrier::complete_tx::bytes.mbarrier::report::fabric"
_HINT, _POLICY = "{H=.L2::cache_hint}", "H?policy:b64"

_REDUCTIONS = ("{and,or,xor}.{b32,b64}", "{min,max}.{u32,s32,u64,s64,f16,bf16}", "add.{u32,u64,f16,bf16,f32,f64}")
_PULLED = ("{and,or,xor}.{b32,b64}", "{min,max}.{u32,s32,u64,s64,f16,bf16}", "add.{u32,u64,f16,bf16,f32}")
_PULLED_LATER = ("{min,max}.{e4m3,e5m2}", "add.acc::f32.{f16,bf16,e4m3,e5m2}")
_LATER: Specific = tuple((name, (9, 3)) for name in ("sm_100f", "sm_110f", "sm_120f"))
"""Where 8-bit floats are pulled, and narrow ones summed in f32."""

_ATOMICS = (
    "{and,or,xor}.{b32,b64}", "{min,max}.{u32,s32,u64,s64,f16x2,bf16x2}", "add.{u32,u64,f16x2,bf16x2,f32,f64}",
    "{exch,cas}.{b32,b64,b128}",
)  # fmt: skip


def _row(spelling: str, operands: str, section: str, ptx: Version = (9, 3), only: Specific = ()) -> PatternRow:
    text = (9, 4) if section == "10" else (9, 3)
    section = f"9.7.{10 if text == (9, 3) else 11}.5.{section}"
    return row(f"fabric.{spelling}", operands, section, ptx=ptx, sm=100, meaning="fabric", only=only, text=text)


def _rows() -> Iterator[PatternRow]:
    """9.7.10.5.1 to .6; `try_atom` is of 9.4, groups of 9.5."""
    local, barrier = "b:[shared], n:u32", "m:[shared]"
    yield _row(f"try_get.async.shared::cta.{_READ}.relaxed.sys{_HINT}.b128",
               f"b:[shared], a:fabric(2), n:u32, {barrier}, {_POLICY}", "1")  # fmt: skip
    for counted, places in (("", 2), (".counted::bytes", 3)):
        mode, where = f".shared::cta.{_DONE}{counted}", f"a:fabric({places}), {local}, {barrier}"
        yield _row(f"try_put.async{{.multimem}}{mode}.relaxed.sys{_HINT}.b128", f"{where}, {_POLICY}", "2")
        for operation in _REDUCTIONS:
            yield _row(f"try_red.async{{.multimem}}{mode}.relaxed.sys{_HINT}.{operation}", f"{where}, {_POLICY}", "3")
    yield _row(f"try_put.async{{.multimem}}.shared::cta.{_DONE}.cp_mask.relaxed.sys{_HINT}.b128",
               f"a:fabric(2), {local}, {barrier}, k:u16, {_POLICY}", "2")  # fmt: skip
    for operation in (*_PULLED, *_PULLED_LATER):
        yield _row(f"try_pullred.async.multimem.shared::cta.{_READ}.relaxed.sys.{operation}.sync",
                   f"b:[shared], a:fabric(2), n:u32, {barrier}, k:imm(-1/4294967295)", "4",
                   only=_LATER if operation in _PULLED_LATER else ())  # fmt: skip
    for operation in _ATOMICS:
        yield _row(f"try_atom.async.shared::cta.{_DONE}.relaxed.sys{_HINT}.{operation}",
                   f"a:fabric(2), b:[shared], c:[shared], {barrier}, {_POLICY}", "10", (9, 4))  # fmt: skip
    yield _row("submit{.op_restrict::fetching}", "", "5")
    yield _row("submit.commit_group", "", "5", (9, 5))
    yield _row("wait.sync_restrict::reads", "", "6")
    yield _row("wait.sync_restrict::read", "n:imm", "6", (9, 5))


FABRIC_ROWS: tuple[PatternRow, ...] = tuple(_rows())
