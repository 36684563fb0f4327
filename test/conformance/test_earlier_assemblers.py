"""The lowest versions of rows against the assemblers of CUDA 13.0 to 13.4: each takes what its version has, no more.

`make judges` brings them into build/judges; without them this says so, and only the newest assembler judges.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

import pytest
import test_ptx_rows as rows

from warploom.dialect.isa.row import TARGETS, Target, Version
from warploom.dialect.ptx.rows.grammar import PatternRow

FOLDER = Path(os.environ.get("WARPLOOM_JUDGES") or Path(__file__).parents[2] / "build" / "judges")
JUDGES = {(9, int(path.name.split(".")[1])): path / "nvidia/cu13/bin/ptxas" for path in sorted(FOLDER.glob("13.*"))}

pytestmark = pytest.mark.skipif(
    not JUDGES, reason=f"no assemblers of CUDA 13.0 to 13.4 in {FOLDER} (make judges, or WARPLOOM_JUDGES)"
)

DIFFERENT = (
    # The member mask -1 is written as 4294967295 for them.
    re.compile(r"fabric\.try_pullred\..*, -1;"),
    # 13.4 takes .block32 alone with a table of B; 13.5 takes the name that 9.7.16.10.7.1 gives for the same.
    re.compile(r"tcgen05\.mma\..*decompress::lut::b\.scale_vec::1X"),
)
"""What an earlier assembler does not take of its own version, and the newest does."""


def own(row: PatternRow, judge: Version) -> tuple[Target, Version] | None:
    """The lowest target of a row that an assembler knows, and the version of the row there."""
    for target in TARGETS.values():
        if target.sm >= rows.LOWEST.sm and row.runs_on(target):
            return (target, max(row.since(target) or row.ptx, target.ptx)) if target.ptx <= judge else None
    return None


@pytest.mark.parametrize("judge", JUDGES, ids=str)
def test_an_assembler_takes_what_its_version_has(judge: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PTXAS", str(JUDGES[judge]))
    earlier: dict[tuple[Target, Version], list[str]] = defaultdict(list)
    later: dict[tuple[Target, Version], list[str]] = defaultdict(list)
    for row, each, spelling in rows.plainest():
        if row not in rows.JUDGED or (where := own(each, judge)) is None:
            continue
        lines = [line for line in rows.instructions(row, [spelling]) if not rows.OF_FUNCTIONS.match(line)]
        if where[1] > judge:
            later[where[0], judge].extend(lines)
        elif where[1] >= (9, 0):
            earlier[where].extend(lines)
    refused = [(lines[i], why) for where, lines in earlier.items() for i, why in rows.rejected(lines, *where).items()]
    assert not [line for line, _ in refused if not any(d.match(line) for d in DIFFERENT)]
    assert not rows.accepted(later)
