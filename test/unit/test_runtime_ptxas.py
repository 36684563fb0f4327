"""ptxas: its log, its absence, its refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from warploom.runtime.base.errors import AssemblerError
from warploom.runtime.cuda import ptxas
from warploom.runtime.cuda.ptxas import Resources

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
    24 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size, 1024 bytes smem, 360 bytes cmem[0]
ptxas info    : Compile time = 8.451 ms
ptxas info    : Compiling entry function 'second$1' for 'sm_90a'
ptxas info    : Function properties for second$1
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""

EMPTY = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n{body}ret;\n}\n"

needs_ptxas = pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")


@pytest.fixture
def no_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas, "find", lambda: None)


def test_the_log_is_read_by_kernel() -> None:
    resources = ptxas.parse_resources(LOG)
    assert resources["first"] == Resources(255, stack=24, spill_stores=16, spill_loads=8, shared=1024, barriers=1)
    assert resources["first"].spills == 24
    assert resources["second$1"] == Resources(10)


@pytest.mark.usefixtures("no_ptxas")
def test_without_ptxas() -> None:
    assert ptxas.version() is None
    with pytest.raises(AssemblerError, match=r"ptxas was not found .* pip install 'warploom\[ptxas\]'"):
        ptxas.assemble("", "sm_90a")


@needs_ptxas
def test_a_kernel_is_assembled() -> None:
    assert ptxas.assemble(EMPTY.replace("{body}", ""), "sm_90a")["k"].spills == 0
    assert (ptxas.version() or "").count(".") == 2


@needs_ptxas
def test_a_refusal_brings_the_messages() -> None:
    with pytest.raises(AssemblerError, match=r"(?s)rejected the PTX for sm_90a:.*kernel.ptx, line 6"):
        ptxas.assemble(EMPTY.replace("{body}", "foo;\n"), "sm_90a")


def test_a_file_that_is_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ptxas, "find", lambda: tmp_path)
    with pytest.raises(AssemblerError, match="ptxas could not be run"):
        ptxas.assemble("", "sm_90a")
