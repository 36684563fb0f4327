"""Writes the table of rows in bench/RESULTS.md from what `bench/rows.py` measured.

python docs/results.py          # or: make docs
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[1] / "bench"
RESULTS, MEASURED = BENCH / "RESULTS.md", BENCH / "rows-h100.json"
TABLE = re.compile(r"(<!-- rows -->\n).*?(<!-- /rows -->)", re.DOTALL)


def table() -> str:
    """Microseconds of each function of rows, for each length of them, and the speed relative to a copy and inductor."""
    found = {(row["case"], row["columns"]): row for row in json.loads(MEASURED.read_text())}
    lengths = sorted({columns for _, columns in found})
    lines = [f"| us; of the copy; of inductor | kernels | {' | '.join(map(str, lengths))} |"]
    lines.append(f"| --- | ---: | {' | '.join('---' for _ in lengths)} |")
    for case in dict.fromkeys(case for case, _ in found):
        own = [found.get((case, columns)) for columns in lengths]
        cells = [_cell(row) if row else "" for row in own]
        kernels = sorted({row["launches"] for row in own if row})
        lines.append(f"| {case} | {', '.join(map(str, kernels))} | {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def _cell(row: dict[str, Any]) -> str:
    shares = [row[peer] / row["ours"] for peer in ("copy", "inductor") if row[peer] == row[peer]]
    return "; ".join([f"{row['ours']:.0f}", *(f"{share:.2f}" for share in shares)])


def text() -> str:
    """The page with the table as it is measured."""
    return TABLE.sub(lambda match: f"{match[1]}{table()}{match[2]}", RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    RESULTS.write_text(text(), encoding="utf-8")
