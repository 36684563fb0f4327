"""ptxas, where there is one: does it take the text, and how many registers does each kernel need?"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ..base.cache import kept, key_of
from ..base.errors import AssemblerError

TIMEOUT_S = 300


@dataclass(frozen=True)
class Resources:
    """What one thread, or for shared memory one CTA, of a kernel needs; sizes in bytes. `spill_stores` and
    `spill_loads` are bytes of the instructions ptxas added, `shared` is static."""

    registers: int
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0
    barriers: int = 0

    @property
    def spills(self) -> int:
        return self.spill_stores + self.spill_loads


@cache
def find(tool: str = "ptxas") -> Path | None:
    """The path of ptxas or nvcc: from the package nvidia-cuda-nvcc, PATH, CUDA_HOME or triton; None without one."""
    return next((path for path in _candidates(tool) if os.access(path, os.X_OK)), None)


def _candidates(tool: str) -> Iterator[Path]:
    try:
        spec = find_spec("nvidia")
    except (ImportError, ValueError):
        spec = None
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(root).glob(f"cu*/bin/{tool}"), reverse=True)
        yield Path(root) / "cuda_nvcc" / "bin" / tool
    if on_path := shutil.which(tool):
        yield Path(on_path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield Path(home) / "bin" / tool
    if (triton := find_spec("triton")) is not None:
        for root in triton.submodule_search_locations or ():
            yield Path(root) / "backends" / "nvidia" / "bin" / tool


def version() -> str | None:
    """The version of ptxas, such as "13.0.88"; None without ptxas."""
    path = find()
    if path is None:
        return None
    match = re.search(r"V([\d.]+)", _run([str(path), "--version"]).stdout)
    return match[1] if match else None


@dataclass(frozen=True)
class Assembled:
    """Machine code, and what each of its kernels needs, by name."""

    cubin: bytes
    resources: dict[str, Resources]


def assemble(ptx: str, target: str) -> dict[str, Resources]:
    """Assemble `ptx` for `target`; the resources of each kernel, by name. Raises AssemblerError if there is no ptxas,
    or with its messages if it rejects the text."""
    return machine_code(ptx, target).resources


def machine_code(ptx: str, target: str) -> Assembled:
    """Assembles `ptx` for `target`, or returns the cached result of the same ptxas. Raises AssemblerError if there is
    no ptxas, or with its messages if it rejects the text."""
    path, store = _required(), kept()
    if store is None:
        return _assembled(path, ptx, target)
    status = path.stat()
    made_by = [str(path), status.st_size, status.st_mtime_ns]
    key = key_of("cubin", {"ptx": ptx, "target": target, "ptxas": made_by})
    made: Assembled | None = store.get(key)
    if made is None:
        store.put(key, made := _assembled(path, ptx, target))
    return made


def _required() -> Path:
    path = find()
    if path is None:
        raise AssemblerError(
            "ptxas was not found in the package nvidia-cuda-nvcc, on PATH or under CUDA_HOME; "
            "pip install 'warploom[ptxas]' brings it"
        )
    return path


def _assembled(path: Path, ptx: str, target: str) -> Assembled:
    with tempfile.TemporaryDirectory(prefix="warploom-") as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        cubin = Path(folder) / "kernel.cubin"
        done = _run([str(path), "-v", f"-arch={target}", str(source), "-o", str(cubin)])
        if done.returncode:
            messages = (done.stderr + done.stdout).replace(str(source), "kernel.ptx").strip()
            raise AssemblerError(f"ptxas rejected the PTX for {target}:\n{messages}")
        return Assembled(cubin.read_bytes(), parse_resources(done.stderr + done.stdout))


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise AssemblerError(f"ptxas took longer than {TIMEOUT_S} s and was stopped") from error
    except OSError as error:
        raise AssemblerError(f"ptxas could not be run: {error}") from error


_FUNCTION = re.compile(r"(?:Compiling entry function|Function properties for) '?([\w$]+)'?")
_FIELDS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
    "shared": re.compile(r"(\d+) bytes smem"),
    "barriers": re.compile(r"used (\d+) barriers"),
}


def parse_resources(log: str) -> dict[str, Resources]:
    """The resources that `ptxas -v` printed for each kernel, by name."""
    fields_of: dict[str, dict[str, int]] = {}
    name = ""
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            name = match[1]
        for field, pattern in _FIELDS.items():
            if name and (match := pattern.search(line)):
                fields_of.setdefault(name, {})[field] = int(match[1])
    return {name: Resources(**fields) for name, fields in fields_of.items() if "registers" in fields}
