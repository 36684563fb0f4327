"""examples/hopper_matmul.py: whole kernels of tensor copies, mbarriers and `wgmma`, on the interpreter."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from warploom.runtime.interp.watch.findings import CheckError

EXAMPLE = Path(__file__).parents[2] / "examples" / "hopper_matmul.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hopper_matmul", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hopper_matmul"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("structure", "size", "ctas"),
    [
        ({"stages": 3}, (256, 256, 320), 1),  # one CTA goes from tile to tile
        ({"m": 256, "n": 128, "stages": 2}, (512, 128, 192), 2),
        ({"m": 192, "n": 64, "stages": 2, "consumers": 3, "columns": 64}, (192, 128, 64), 2),
        ({"cluster": 2, "n": 128, "stages": 3}, (512, 128, 256), 2),
    ],
    ids=str,
)
def test_products(example: ModuleType, structure: dict[str, int], size: tuple[int, int, int], ctas: int) -> None:
    """The right kernel is silent under all checks; sums in f32 are far more exact than bf16, of 8 bits."""
    assert example.run(example.Structure(**structure), size, "interp", ctas, checks="all") < 2**-8


def test_descriptors_of_whole_addresses_are_found(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    structure = example.Structure(cluster=2, n=128, stages=3)
    right = example.text(structure)
    mask = "and.b32 %r33, %r33, 0x3FFFF;"
    assert right.count(mask) == 1
    wrong = right.replace(mask, "")
    monkeypatch.setattr(example, "text", lambda _: wrong)
    line = 1 + next(i for i, text in enumerate(wrong.splitlines()) if text.startswith("wgmma.mma_async"))
    with pytest.raises(CheckError) as caught:
        example.run(structure, (512, 128, 64), "interp", 2, checks="wgmma")
    findings = [f for f in caught.value.findings if "has the rank of its CTA in the cluster, 1" in f.message]
    assert {f.line for f in findings} >= {line}
