"""What `warploom check` says of text that ptxas repairs or ignores: notes, and no errors."""

from __future__ import annotations

from pathlib import Path

import hopper_kernel
import pytest
from repaired import KERNEL, REPAIRED, WAIT
from seeded_bugs import edited

from warploom.dialect.ptx.check.module import check_text
from warploom.runtime import check_ptx
from warploom.runtime.cli.command import main


def notes(text: str) -> list[tuple[int, str]]:
    assert check_ptx(text) == []
    return [(note.line, note.message) for note in check_text(text).notes]


def test_right_kernels_have_no_notes() -> None:
    for text in (KERNEL, hopper_kernel.text(), hopper_kernel.cluster_text()):
        assert notes(text) == []


@pytest.mark.parametrize("name", REPAIRED)
def test_what_ptxas_repairs_is_said(name: str) -> None:
    change = REPAIRED[name]
    repairs = notes(edited(KERNEL, change.old, change.new))
    assert [(line, change.message in message) for line, message in repairs] == [(change.line, True)]


def test_a_wait_covers_the_groups_that_it_does_not_leave() -> None:
    two = "wgmma.commit_group.sync.aligned; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;"
    assert notes(edited(KERNEL, WAIT, two)) == []
    ((line, message),) = notes(edited(KERNEL, WAIT, two.replace("aligned 1;", "aligned 3;")))
    assert line == 12
    assert "%f0 belongs to the product at line 9, which is not waited for" in message


def test_a_label_ends_what_is_known() -> None:
    change = REPAIRED["touched"]
    assert notes(edited(KERNEL, change.old, f"{change.new} HERE:")) == []


def test_notes_are_printed_and_are_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, file = REPAIRED["groups"], tmp_path / "k.ptx"
    file.write_text(edited(KERNEL, change.old, change.new))
    assert main(["check", str(file)]) == 0
    assert capsys.readouterr().out.startswith(f"{file}:11:5: note: wgmma.wait_group.sync.aligned: ptxas waits as for 7")
