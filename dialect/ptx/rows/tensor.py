"""Copies of boxes of tensors. Source: PTX ISA 9.7.9.25.5 to 9.7.9.27."""

from __future__ import annotations

from .grammar import row

_ANY, _IM2COL = "D{1d,2d,3d,4d,5d}", "D{3d,4d,5d}"
_HINT = "{H=.L2::cache_hint}"
_LOAD = "cp.async.bulk.tensor"
_DONE = ".mbarrier::complete_tx::bytes"

ROWS = (
    # 9.7.9.25.5.2  cp.async.bulk.tensor
    row(
        f"{_LOAD}.{_ANY}.shared::cluster.global{{.tile}}{_DONE}{{C=.multicast::cluster}}{_HINT}",
        "a:[], b:tensor, m:[], C?mask:u16, H?policy:b64",
        "9.7.9.25.5.2", ptx=(8, 0), sm=90, meaning="tensor.load",
    ),
    row(
        f"{_LOAD}.{_ANY}.shared::cta.global{{.tile}}{_DONE}{_HINT}",
        "a:[], b:tensor, m:[], H?policy:b64",
        "9.7.9.25.5.2", ptx=(8, 6), sm=90, meaning="tensor.load",
    ),
    row(
        f"{_LOAD}.{_ANY}.global.shared::cta{{.tile}}.bulk_group{_HINT}",
        "a:tensor, b:[], H?policy:b64",
        "9.7.9.25.5.2", ptx=(8, 0), sm=90, meaning="tensor.store",
    ),
    # 9.7.9.25.5.3  cp.reduce.async.bulk.tensor
    row(
        f"cp.reduce.async.bulk.tensor.{_ANY}.global.shared::cta.OP{{add,min,max,inc,dec,and,or,xor}}{{.tile}}.bulk_group"
        f"{_HINT}",
        "a:tensor, b:[], H?policy:b64",
        "9.7.9.25.5.3", ptx=(8, 0), sm=90, meaning="tensor.store",
    ),
    # 9.7.9.25.5.4  cp.async.bulk.prefetch.tensor
    row(
        f"cp.async.bulk.prefetch.tensor.{_ANY}.L2.global{{.tile}}{_HINT}",
        "b:tensor, H?policy:b64",
        "9.7.9.25.5.4", ptx=(8, 0), sm=90, meaning="tensor.prefetch",
    ),
)  # fmt: skip
