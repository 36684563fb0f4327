"""Copies that complete later. Source: PTX ISA 9.7.9.25."""

from __future__ import annotations

from .grammar import row

_PREFETCH = "{.L2::64B,.L2::128B,.L2::256B}"

ROWS = (
    # 9.7.9.25.3.1  cp.async
    row("cp.async.ca.shared.global", "a:[], b:[], n:imm(4/8/16), ?s:u32", "9.7.9.25.3.1", ptx=(7, 0), sm=80),
    row("cp.async.cg.shared.global", "a:[], b:[], n:imm(16), ?s:u32", "9.7.9.25.3.1", ptx=(7, 0), sm=80),
    row("cp.async.ca.shared.global", "a:[], b:[], n:imm(4/8/16), q:!pred", "9.7.9.25.3.1", ptx=(7, 5), sm=80),
    row("cp.async.cg.shared.global", "a:[], b:[], n:imm(16), q:!pred", "9.7.9.25.3.1", ptx=(7, 5), sm=80),
    row(
        "cp.async.ca.shared.global.{L2::64B,L2::128B,L2::256B}",
        "a:[], b:[], n:imm(4/8/16), ?s:u32",
        "9.7.9.25.3.1",
        ptx=(7, 4),
        sm=80,
    ),
    row(
        "cp.async.cg.shared.global.{L2::64B,L2::128B,L2::256B}",
        "a:[], b:[], n:imm(16), ?s:u32",
        "9.7.9.25.3.1",
        ptx=(7, 4),
        sm=80,
    ),
    row(
        f"cp.async.ca.shared::cta.global{_PREFETCH}",
        "a:[], b:[], n:imm(4/8/16), ?s:u32",
        "9.7.9.25.3.1",
        ptx=(7, 8),
        sm=80,
    ),
    row(
        f"cp.async.cg.shared::cta.global{_PREFETCH}", "a:[], b:[], n:imm(16), ?s:u32", "9.7.9.25.3.1", ptx=(7, 8), sm=80
    ),
    # 9.7.9.25.3.2  cp.async.commit_group
    row("cp.async.commit_group", "", "9.7.9.25.3.2", ptx=(7, 0), sm=80),
    # 9.7.9.25.3.3  cp.async.wait_group, cp.async.wait_all
    row("cp.async.wait_group", "n:imm", "9.7.9.25.3.3", ptx=(7, 0), sm=80),
    row("cp.async.wait_all", "", "9.7.9.25.3.3", ptx=(7, 0), sm=80),
    # 9.7.9.25.4.1  cp.async.bulk
    row(
        "cp.async.bulk.shared::cluster.{global,shared::cta}.mbarrier::complete_tx::bytes",
        "a:[], b:[], n:u32, m:[]",
        "9.7.9.25.4.1",
        ptx=(8, 0),
        sm=90,
    ),
    row(
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes",
        "a:[], b:[], n:u32, m:[]",
        "9.7.9.25.4.1",
        ptx=(8, 6),
        sm=90,
    ),
    row("cp.async.bulk.global.shared::cta.bulk_group", "a:[], b:[], n:u32", "9.7.9.25.4.1", ptx=(8, 0), sm=90),
    # 9.7.9.25.4.2  cp.reduce.async.bulk
    *(
        row(
            f"cp.reduce.async.bulk.global.shared::cta.bulk_group{hint}.{rest}",
            f"a:[], b:[], n:u32{policy}",
            "9.7.9.25.4.2",
            ptx=(8, 0),
            sm=90,
            meaning="cp.reduce.bulk",
        )
        for hint, policy in (("", ""), (".L2::cache_hint", ", p:b64"))
        for rest in (
            "OP{and,or,xor}.T{b32,b64}",
            "OP{inc,dec}.T{u32}",
            "OP{min,max}.T{u32,s32,u64,s64,f16,bf16}",
            "OP{add}.T{u32,s32,u64,f32,f64}",
            "OP{add}.noftz.T{f16,bf16}",
        )
    ),
    # 9.7.9.25.3.2, .3  groups of bulk copies
    row("cp.async.bulk.commit_group", "", "9.7.9.25.3.2", ptx=(8, 0), sm=90),
    row("cp.async.bulk.wait_group{.read}", "n:imm", "9.7.9.25.3.3", ptx=(8, 0), sm=90),
)
