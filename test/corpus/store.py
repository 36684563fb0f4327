"""Where the compiled kernels lie: a folder that cuda_ptx.py has filled, or the archive that is committed."""

from __future__ import annotations

import io
import re
import tarfile
from functools import cached_property
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parent.parent / "out" / "corpus"
ARCHIVE = HERE / "kernels.tar.xz"
PACKED = ("sm_80", "sm_90a", "sm_100a")
"""The targets whose PTX the archive has; of the last, that of programs which have no other."""


class Store:
    """PTX by source and target: `path` is a folder of .ptx files or an archive of them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def texts(self) -> dict[str, str]:
        """Every file, by name."""
        if self.path.is_dir():
            return {p.name: p.read_text() for p in self.path.glob("*.ptx")}
        with tarfile.open(self.path) as archive:
            members = ((m.name, archive.extractfile(m)) for m in archive.getmembers())
            return {name: file.read().decode() for name, file in members if file is not None}

    def find(self, file: str, kernel: str, target: str) -> str | None:
        """The name of the PTX file that holds a kernel: that of its source, or a program of its own."""
        return next((n for n in (f"{file}.{target}.ptx", f"{kernel}.{target}.ptx") if n in self.texts), None)


def alone(text: str, kernel: str) -> str:
    """A module without the bodies of its other kernels, which keeps the numbers of the lines; nvcc's form only."""
    return re.sub(
        r"^\.visible \.entry (\w+)\(.*?\n\n}\n",
        lambda match: match[0] if match[1] == kernel else "\n" * match[0].count("\n"),
        text,
        flags=re.S | re.M,
    )


def pack(folder: Path, archive: Path) -> int:
    """Puts what a folder has for the packed targets into an archive, the same bytes for the same texts; how many."""
    paths = [p for p in sorted(folder.glob("*.ptx")) if p.name.endswith(tuple(f".{t}.ptx" for t in PACKED))]
    elsewhere = {p.name.partition(".")[0] for p in paths if not p.name.endswith(f".{PACKED[-1]}.ptx")}
    paths = [p for p in paths if not (p.name.endswith(f".{PACKED[-1]}.ptx") and p.name.partition(".")[0] in elsewhere)]
    with tarfile.open(archive, "w:xz", preset=9) as file:
        for path in paths:
            member, data = tarfile.TarInfo(path.name), path.read_bytes()
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return len(paths)
