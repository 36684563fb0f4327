"""Each function that `bench/rows.py` times, on a GPU: the interpreter's words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from test_timed_rows import SIZES, compiled, operands_of, timed  # pyright: ignore[reportMissingImports] # noqa: E402


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", timed.CASES)
@pytest.mark.parametrize("size", SIZES)
def test_words_are_those_of_the_interpreter(monkeypatch: pytest.MonkeyPatch, name: str, size: tuple[int, int]) -> None:
    monkeypatch.setattr(timed, "CHOSEN", 2)
    monkeypatch.setattr("warploom.passes.linalg.split_rows.MIN_ROWS", 1)
    monkeypatch.setattr("warploom.passes.linalg.split_rows.FEW_ROWS", 1)
    operands = operands_of(name, (size[0] * 3, size[1]))
    kernel, poisoned = compiled(name, operands)
    words = list[list[bytes]]()
    for device in ("cuda", "interp"):
        results = [x.to("cuda" if device == "cuda" else "cpu") for x in poisoned]
        kernel(*(x.to(results[0].device) for x in operands), *results, device=device)
        words.append([x.cpu().reshape(-1).view(torch.uint8).numpy().tobytes() for x in results])
    assert words[0] == words[1]
