"""The corpus on a GPU: every judge content, and every word that instructions define the interpreter's own."""

from __future__ import annotations

import pytest
from corpus_words import PACKED, parts, spawn

from warploom.runtime.cuda.driver import GpuDevice


@pytest.mark.gpu
@pytest.mark.parametrize("target", PACKED)
@pytest.mark.parametrize("part", parts([]), ids=lambda part: part[0])
def test_kernels_are_right_and_their_words_equal(part: list[str], target: str, device: GpuDevice) -> None:
    wrong = [o for o in spawn(part, target) if o.gpu not in ("right", "not launched") or o.words == "differ"]
    assert not wrong
