"""Each kind of convolution that `bench/convolutions.py` times, and its gradients, on a GPU: the interpreter's words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from test_timed_convolutions import CASES, KINDS, drawn, seen  # pyright: ignore[reportMissingImports] # noqa: E402

from warploom.runtime import compile  # noqa: E402


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("kind", "by"), CASES)
def test_words_are_those_of_the_interpreter(kind: str, by: str) -> None:
    layer = KINDS[kind]._replace(by=by)
    tensors = drawn(layer)
    kernel, words = compile(layer.text(), target="sm_90a", cache=False), list[bytes]()
    for device in ("cuda", "interp"):
        operands = [x.to("cuda" if device == "cuda" else "cpu") for x in seen(layer, tensors)]
        operands[-1].fill_(99.0)
        kernel(*operands, device=device)
        words.append(operands[-1].cpu().contiguous().view(torch.uint8).numpy().tobytes())
    assert words[0] == words[1]
