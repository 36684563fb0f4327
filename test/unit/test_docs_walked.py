"""Pages whose commands are run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_commands import ROOT, folder, walk

KERNELS = ROOT / "test" / "data" / "kernels"
SOFTMAX = (KERNELS / "triton_softmax_sm90.ptx").read_text().replace("triton_softmax", "softmax")
TRITON = {"python examples/triton_softmax.py": SOFTMAX}
"""What Triton made of the program: it is no dependency of the tests."""


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder()
    assert walk((ROOT / "docs" / "tutorial.md").read_text(), TRITON) == 22


def test_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder()
    page = (ROOT / "README.md").read_text().partition("## Work on it")[0]
    elsewhere = {"python examples/torch_mlp.py": ""}  # test_torch_backend.py runs it
    assert walk(page, TRITON | elsewhere | {". .venv/bin/activate": ""}) == 25
    assert {path.name for path in tmp_path.iterdir()} == {
        "examples",
        "gelu.ptx",
        "softmax.ptx",
        "matmul.ptx",
        "out.json",
    }
    assert Path("gelu.ptx").read_text().startswith(".version")


def test_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder()
    assert walk((ROOT / "docs" / "index.md").read_text(), {}) == 7


def test_the_page_on_proofs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder()
    assert walk((ROOT / "docs" / "prove.md").read_text(), TRITON) == 8


def test_the_page_on_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert walk((ROOT / "docs" / "experts.md").read_text(), {}) == 5


def test_the_page_on_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert walk((ROOT / "docs" / "rows.md").read_text(), {}) == 3


def test_the_page_on_judging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder()
    assert walk((ROOT / "docs" / "judge.md").read_text(), TRITON) == 4


def test_the_page_on_upstream_s_dialects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert walk((ROOT / "docs" / "interop.md").read_text(), {}) == 1


def test_the_program_in_triton_is_that_of_the_ptx() -> None:
    ours = re.search(r"@triton.jit\n(.*?)\n\n\n", (ROOT / "examples" / "triton_softmax.py").read_text(), re.DOTALL)
    theirs = (KERNELS / "triton_kernels.py").read_text()
    assert ours is not None
    assert ours[1].replace("def softmax", "def triton_softmax") in theirs


def test_the_program_in_triton_leaves_the_version_of_ptx_to_triton() -> None:
    # Triton assembles what it prints by its own ptxas, which refuses later versions than its own
    assert "ptx_version" not in (ROOT / "examples" / "triton_softmax.py").read_text()


def test_the_page_on_strategies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder()
    assert walk((ROOT / "docs" / "strategies.md").read_text(), {}) == 8
