"""An instruction of PTX that there is not: `twice.f32 d, a`."""

from warploom.dialect.ptx.rows.grammar import row

ROWS = (row("twice.T{f32}", "d:T, a:T", "0.0", ptx=(7, 0), sm=80, meaning="toy.twice"),)
