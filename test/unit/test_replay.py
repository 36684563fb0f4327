"""The interpreter's answers against those of silicon, word for word.

`test/gpu/capture.py` recorded the words; `test/captured.py` draws the operands again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from captured import KINDS, LANES, Case, cases, inputs, kernel, module

from warploom.dialect.isa.targets import target
from warploom.runtime import load_ptx

RECORDINGS = sorted((Path(__file__).parent.parent / "data" / "words").glob("*.npz"))


def recorded() -> Iterator[tuple[Path, Case]]:
    """Every recorded instruction that the interpreter executes."""
    for path in RECORDINGS:
        yield from ((path, case) for case in cases(target(path.stem)))


@pytest.mark.parametrize(("path", "case"), list(recorded()), ids=lambda x: x.name if isinstance(x, Case) else x.stem)
def test_every_word_is_the_silicons(path: Path, case: Case) -> None:
    with np.load(path) as data:
        header, expected = json.loads(str(data["header"])), data[case.name]
    warps = header["warps"]
    answers = np.full(expected.shape, 0xDEADBEEF, np.uint32)
    program = load_ptx(module([kernel(case, "k")], target(header["target"])))
    words = np.ascontiguousarray(inputs(case, warps))
    program.launch("k", grid=(warps, 1, 1), block=(LANES, 1, 1), args=[words, answers], device="interp")
    wrong = answers != expected
    by_kind = {kind: int(wrong[i :: len(KINDS)].sum()) for i, kind in enumerate(KINDS)}
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} words differ: {by_kind}"


def test_something_is_recorded() -> None:
    assert len(list(recorded())) >= 262
