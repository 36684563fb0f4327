"""Floating-point arithmetic. Source: PTX ISA 9.7.3 (single and double), 9.7.4 (half), 9.7.5 (mixed precision)."""

from __future__ import annotations

from dataclasses import replace

from .grammar import pure, row

_ROWS = (
    # 9.7.3  f32 and f64
    row(
        "testp.TEST{finite,infinite,number,notanumber,normal,subnormal}.T{f32,f64}",
        "d:pred, a:T",
        "9.7.3.1",
        ptx=(2, 0),
        sm=20,
    ),
    row("copysign.T{f32,f64}", "d:T, a:T, b:T", "9.7.3.2", ptx=(2, 0), sm=20),
    row("add{ROUND=.rn,.rz,.rm,.rp}{FTZ=.ftz}{SAT=.sat}.T{f32}", "d:T, a:T, b:T", "9.7.3.3", sm=20),
    row("add{ROUND=.rn,.rz,.rm,.rp}.T{f64}", "d:T, a:T, b:T", "9.7.3.3", sm=20),
    row("add{ROUND=.rn,.rz,.rm,.rp}{FTZ=.ftz}.T{f32x2}", "d:T, a:T, b:T", "9.7.3.3", ptx=(8, 6), sm=100),
    row("sub{ROUND=.rn,.rz,.rm,.rp}{FTZ=.ftz}{SAT=.sat}.T{f32}", "d:T, a:T, b:T", "9.7.3.4", sm=20),
    row("sub{ROUND=.rn,.rz,.rm,.rp}{FTZ=.ftz}.T{f32x2}", "d:T, a:T, b:T", "9.7.3.4", ptx=(8, 6), sm=100),
    row("sub{ROUND=.rn,.rz,.rm,.rp}.T{f64}", "d:T, a:T, b:T", "9.7.3.4", sm=20),
    row("mul{ROUND=.rn,.rz,.rm,.rp}{FTZ=.ftz}{SAT=.sat}.T{f32}", "d:T, a:T, b:T", "9.7.3.5", sm=20),
    row("mul{ROUND=.rn,.rz,.rm,.rp}.T{f64}", "d:T, a:T, b:T", "9.7.3.5", sm=20),
    row("mul{ROUND=.rn,.rz,.rm,.rp}{FTZ=.ftz}.T{f32x2}", "d:T, a:T, b:T", "9.7.3.5", ptx=(8, 6), sm=100),
    row("fma.ROUND{rn,rz,rm,rp}{FTZ=.ftz}{SAT=.sat}.T{f32}", "d:T, a:T, b:T, c:T", "9.7.3.6", ptx=(2, 0), sm=20),
    row("fma.ROUND{rn,rz,rm,rp}.T{f64}", "d:T, a:T, b:T, c:T", "9.7.3.6", ptx=(1, 4), sm=20),
    row("fma.ROUND{rn,rz,rm,rp}{FTZ=.ftz}.T{f32x2}", "d:T, a:T, b:T, c:T", "9.7.3.6", ptx=(8, 6), sm=100),
    row("mad.ROUND{rn,rz,rm,rp}{FTZ=.ftz}{SAT=.sat}.T{f32}", "d:T, a:T, b:T, c:T", "9.7.3.7", ptx=(2, 0), sm=20),
    row("mad.ROUND{rn,rz,rm,rp}.T{f64}", "d:T, a:T, b:T, c:T", "9.7.3.7", ptx=(1, 4), sm=20),
    row("div.MODE{approx,full}{FTZ=.ftz}.T{f32}", "d:T, a:T, b:T", "9.7.3.8", ptx=(1, 4)),
    row("div.ROUND{rn,rz,rm,rp}{FTZ=.ftz}.T{f32}", "d:T, a:T, b:T", "9.7.3.8", ptx=(1, 4), sm=20),
    row("div.ROUND{rn,rz,rm,rp}.T{f64}", "d:T, a:T, b:T", "9.7.3.8", ptx=(1, 4), sm=20),
    row("abs{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.9"),
    row("abs.T{f64}", "d:T, a:T", "9.7.3.9"),
    row("neg{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.10"),
    row("neg.T{f64}", "d:T, a:T", "9.7.3.10"),
    row("min{FTZ=.ftz}.T{f32}", "d:T, a:T, b:T", "9.7.3.11"),
    row("min{FTZ=.ftz}.NAN{NaN}.T{f32}", "d:T, a:T, b:T", "9.7.3.11", ptx=(7, 0), sm=80),
    row("min{FTZ=.ftz}{NAN=.NaN}.SIGN{xorsign}.ABS{abs}.T{f32}", "d:T, a:T, b:T", "9.7.3.11", ptx=(7, 2), sm=86),
    row("min{FTZ=.ftz}{NAN=.NaN}{ABS=.abs}.T{f32}", "d:T, a:T, b:T, c:T", "9.7.3.11", ptx=(8, 8), sm=100),
    row("min.T{f64}", "d:T, a:T, b:T", "9.7.3.11"),
    row("max{FTZ=.ftz}.T{f32}", "d:T, a:T, b:T", "9.7.3.12"),
    row("max{FTZ=.ftz}.NAN{NaN}.T{f32}", "d:T, a:T, b:T", "9.7.3.12", ptx=(7, 0), sm=80),
    row("max{FTZ=.ftz}{NAN=.NaN}.SIGN{xorsign}.ABS{abs}.T{f32}", "d:T, a:T, b:T", "9.7.3.12", ptx=(7, 2), sm=86),
    row("max{FTZ=.ftz}{NAN=.NaN}{ABS=.abs}.T{f32}", "d:T, a:T, b:T, c:T", "9.7.3.12", ptx=(8, 8), sm=100),
    row("max.T{f64}", "d:T, a:T, b:T", "9.7.3.12"),
    row("rcp.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.13", ptx=(1, 4)),
    row("rcp.ROUND{rn,rz,rm,rp}{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.13", ptx=(1, 4), sm=20),
    row("rcp.ROUND{rn,rz,rm,rp}.T{f64}", "d:T, a:T", "9.7.3.13", ptx=(1, 4), sm=20),
    row("rcp.approx.FTZ{ftz}.T{f64}", "d:T, a:T", "9.7.3.14", ptx=(2, 1), sm=20),
    row("sqrt.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.15", ptx=(1, 4)),
    row("sqrt.ROUND{rn,rz,rm,rp}{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.15", ptx=(1, 4), sm=20),
    row("sqrt.ROUND{rn,rz,rm,rp}.T{f64}", "d:T, a:T", "9.7.3.15", ptx=(1, 4), sm=20),
    row("rsqrt.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.16", ptx=(1, 4)),
    row("rsqrt.approx.T{f64}", "d:T, a:T", "9.7.3.16", ptx=(1, 4), sm=20),
    row("rsqrt.approx.FTZ{ftz}.T{f64}", "d:T, a:T", "9.7.3.17", ptx=(4, 0), sm=20),
    row("sin.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.18", ptx=(1, 4)),
    row("cos.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.19", ptx=(1, 4)),
    row("lg2.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.20", ptx=(1, 4)),
    row("ex2.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.21", ptx=(1, 4)),
    row("tanh.approx.T{f32}", "d:T, a:T", "9.7.3.22", ptx=(7, 0), sm=75),
    # 9.7.5  f32 with operands of 16 bits
    *(
        row(
            f"{root}{{ROUND=.rn,.rz,.rm,.rp}}{{SAT=.sat}}.D{{f32}}.T{{f16,bf16}}",
            "d:D, a:T, c:D",
            f"9.7.5.{section}",
            ptx=(8, 6),
            sm=100,
            meaning=f"{root}.mixed",
        )
        for root, section in (("add", 1), ("sub", 2))
    ),
    row(
        "fma.ROUND{rn,rz,rm,rp}{SAT=.sat}.D{f32}.T{f16,bf16}",
        "d:D, a:T, b:T, c:D",
        "9.7.5.3",
        ptx=(8, 6),
        sm=100,
        meaning="fma.mixed",
    ),
    # 9.7.4  f16, bf16 and their pairs
    row("add{ROUND=.rn}{FTZ=.ftz}{SAT=.sat}.T{f16,f16x2}", "d:T, a:T, b:T", "9.7.4.1", ptx=(4, 2), sm=53),
    row("add{ROUND=.rn}.T{bf16,bf16x2}", "d:T, a:T, b:T", "9.7.4.1", ptx=(7, 8), sm=90),
    row("sub{ROUND=.rn}{FTZ=.ftz}{SAT=.sat}.T{f16,f16x2}", "d:T, a:T, b:T", "9.7.4.2", ptx=(4, 2), sm=53),
    row("sub{ROUND=.rn}.T{bf16,bf16x2}", "d:T, a:T, b:T", "9.7.4.2", ptx=(7, 8), sm=90),
    row("mul{ROUND=.rn}{FTZ=.ftz}{SAT=.sat}.T{f16,f16x2}", "d:T, a:T, b:T", "9.7.4.3", ptx=(4, 2), sm=53),
    row("mul{ROUND=.rn}.T{bf16,bf16x2}", "d:T, a:T, b:T", "9.7.4.3", ptx=(7, 8), sm=90),
    row("fma.ROUND{rn}{FTZ=.ftz}{SAT=.sat}.T{f16,f16x2}", "d:T, a:T, b:T, c:T", "9.7.4.4", ptx=(4, 2), sm=53),
    row("fma.ROUND{rn}{FTZ=.ftz}.RELU{relu}.T{f16,f16x2}", "d:T, a:T, b:T, c:T", "9.7.4.4", ptx=(7, 0), sm=80),
    row("fma.ROUND{rn,rz,rm,rp}{RELU=.relu}.T{bf16,bf16x2}", "d:T, a:T, b:T, c:T", "9.7.4.4", ptx=(7, 0), sm=80),
    *(
        row(
            f"fma.{rounding}.oob{{RELU=.relu}}.T{{{types}}}",
            "d:T, a:T, b:T, c:T",
            "9.7.4.4",
            ptx=(8, 1),
            sm=90,
            meaning="fma.oob",
        )
        for rounding, types in (("rn", "f16,f16x2"), ("{rn,rz,rm,rp}", "bf16,bf16x2"))
    ),
    row("neg{FTZ=.ftz}.T{f16,f16x2}", "d:T, a:T", "9.7.4.5", ptx=(6, 0), sm=53),
    row("neg.T{bf16,bf16x2}", "d:T, a:T", "9.7.4.5", ptx=(7, 0), sm=80),
    row("abs{FTZ=.ftz}.T{f16,f16x2}", "d:T, a:T", "9.7.4.6", ptx=(6, 5), sm=53),
    row("abs.T{bf16,bf16x2}", "d:T, a:T", "9.7.4.6", ptx=(7, 0), sm=80),
    row("min{FTZ=.ftz}{NAN=.NaN}.T{f16,f16x2}", "d:T, a:T, b:T", "9.7.4.7", ptx=(7, 0), sm=80),
    row("min{FTZ=.ftz}{NAN=.NaN}.SIGN{xorsign}.ABS{abs}.T{f16,f16x2}", "d:T, a:T, b:T", "9.7.4.7", ptx=(7, 2), sm=86),
    row("min{NAN=.NaN}.T{bf16,bf16x2}", "d:T, a:T, b:T", "9.7.4.7", ptx=(7, 0), sm=80),
    row("min{NAN=.NaN}.SIGN{xorsign}.ABS{abs}.T{bf16,bf16x2}", "d:T, a:T, b:T", "9.7.4.7", ptx=(7, 2), sm=86),
    row("max{FTZ=.ftz}{NAN=.NaN}.T{f16,f16x2}", "d:T, a:T, b:T", "9.7.4.8", ptx=(7, 0), sm=80),
    row("max{FTZ=.ftz}{NAN=.NaN}.SIGN{xorsign}.ABS{abs}.T{f16,f16x2}", "d:T, a:T, b:T", "9.7.4.8", ptx=(7, 2), sm=86),
    row("max{NAN=.NaN}.T{bf16,bf16x2}", "d:T, a:T, b:T", "9.7.4.8", ptx=(7, 0), sm=80),
    row("max{NAN=.NaN}.SIGN{xorsign}.ABS{abs}.T{bf16,bf16x2}", "d:T, a:T, b:T", "9.7.4.8", ptx=(7, 2), sm=86),
    row("tanh.approx.T{f16,f16x2}", "d:T, a:T", "9.7.4.9", ptx=(7, 0), sm=75),
    row("tanh.approx.T{bf16,bf16x2}", "d:T, a:T", "9.7.4.9", ptx=(7, 8), sm=90),
    row("ex2.approx.T{f16,f16x2}", "d:T, a:T", "9.7.4.10", ptx=(7, 0), sm=75),
    row("ex2.approx.FTZ{ftz}.T{bf16,bf16x2}", "d:T, a:T", "9.7.4.10", ptx=(7, 8), sm=90),
)

ROWS = pure(row if row.meaning else replace(row, meaning=f"{row.root}.float") for row in _ROWS)
"""The names of what they mean differ from those of the integer instructions with the same first word."""
