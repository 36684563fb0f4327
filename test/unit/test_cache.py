"""Kernels and machine code kept on disk: what hits, what misses, writers at once, damage, eviction, the command."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warploom.passes.diagnostics import remarks
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, Kernel, compile
from warploom.runtime.base import cache
from warploom.runtime.base.cache import Cache
from warploom.runtime.base.launch import Mapped
from warploom.runtime.cli.command import main
from warploom.runtime.cuda import ptxas

PRODUCT = """\
func.func @product(%A: memref<20x24xf16>, %B: memref<24x12xf16>, %C: memref<20x12xf32>) {
  linalg.matmul ins(%A, %B : memref<20x24xf16>, memref<24x12xf16>) outs(%C : memref<20x12xf32>)
  return
}
"""
DYNAMIC = PRODUCT.replace("20x", "?x").replace("24x", "?x").replace("12x", "?x")
SPARSE = """\
func.func @sparse(%A: memref<20x32xf16>, %E: memref<2x32xi32>, %B: memref<64x12xf16>, %C: memref<20x12xf32>) {
  linalg.matmul {warp.metadata = 1} ins(%A, %B : memref<20x32xf16>, memref<64x12xf16>) outs(%C : memref<20x12xf32>)
  return
}
"""
PACKED = PRODUCT.replace("24x", "17x").replace("x24x", "x17x").replace("20x24", "20x17")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kept"))
    entries = cache.kept()
    assert entries is not None
    return entries


def phases(*args: Any, **options: Any) -> list[str]:
    seen: list[str] = []
    compile(*args, on_phase=lambda name, _: seen.append(name), **options)
    return seen


class TestKernels:
    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("text", [PRODUCT, DYNAMIC, SPARSE, PACKED])
    def test_what_is_read_is_what_was_kept(self, store: Cache, text: str) -> None:
        made = compile(text)
        assert phases(text) == ["cache"]
        assert compile(text) == made
        assert len(store.entries()) == 1

    def test_remarks_are_those_of_a_compilation(self, store: Cache) -> None:
        heard: list[list[str]] = []
        for _ in range(2):
            with remarks() as said:
                compile(PRODUCT, mma="m16n8k16", stages=1)
            heard.append(said)
            compile(PRODUCT, mma="m16n8k16", stages=1)
        assert heard[0]
        assert heard[0] == heard[1]
        assert len(store.entries()) == 1

    def test_so_are_tensor_maps(self, store: Cache) -> None:
        text = PRODUCT.replace("20x", "64x").replace("24x", "128x").replace("x24", "x128").replace("x12x", "x64x")
        made = compile(text, mma="m64n64k16")
        assert any(isinstance(argument, Mapped) for argument in made.launches[0].arguments)
        assert compile(text, mma="m64n64k16") == made
        assert phases(text, mma="m64n64k16") == ["cache"]

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("text", [PRODUCT, DYNAMIC])
    def test_a_kernel_that_was_kept_runs(self, store: Cache, text: str) -> None:
        random = np.random.default_rng(4)
        a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((20, 24), (24, 12)))
        compile(text)
        assert phases(text) == ["cache"]
        expected = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(compile(text)(a, b, device="interp"), expected, rtol=1e-4, atol=1e-5)

    def test_a_message_of_a_kept_kernel_has_its_place(self, store: Cache, tmp_path: Path) -> None:
        path = tmp_path / "a.mlir"
        path.write_text(DYNAMIC)
        compile(path)
        kernel = compile(path)
        assert f'loc("{path}":1:1)' in kernel.host

    def test_a_module(self, store: Cache) -> None:
        module = parse_mlir(make_context(), PRODUCT, "a.mlir")
        compile(module)
        assert phases(module) == ["cache"]
        assert phases(parse_mlir(make_context(), PRODUCT.replace("20", "21"), "a.mlir")) != ["cache"]

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize(
        "other",
        [
            lambda _: compile(PRODUCT + " "),
            lambda _: compile(PRODUCT, "sm_80"),
            lambda _: compile(PRODUCT, stages=2),
            lambda _: compile(PRODUCT, cta=(32, 32, 32)),
            lambda _: compile(PRODUCT, tf32=True),
            lambda _: compile(PRODUCT, name="product"),
            lambda _: compile(PRODUCT, file="b.mlir"),
            lambda folder: compile(PRODUCT, tuned=tuned(folder)),
        ],
    )
    def test_everything_that_matters_is_in_the_key(
        self, store: Cache, tmp_path: Path, other: Callable[[Path], Kernel]
    ) -> None:
        compile(PRODUCT)
        other(tmp_path)
        assert len(store.entries()) == 2

    def test_so_is_the_compiler(self, store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
        compile(PRODUCT)
        monkeypatch.setattr(cache, "compiler", lambda: "another")
        assert phases(PRODUCT) != ["cache"]

    def test_errors_are_not_kept(self, store: Cache) -> None:
        for _ in range(2):
            with pytest.raises(CompileError, match="unknown target"):
                compile(PRODUCT, "sm_1")
            with pytest.raises(CompileError, match=r"nope\.json: No such file"):
                compile(PRODUCT, tuned="nope.json")
        assert store.entries() == []

    @pytest.mark.parametrize("off", [{"cache": False}, {}])
    def test_it_can_be_left_out(self, store: Cache, monkeypatch: pytest.MonkeyPatch, off: dict[str, Any]) -> None:
        if not off:
            monkeypatch.setenv(cache.VARIABLE, cache.OFF)
        compile(PRODUCT, **off)
        assert store.entries() == []

    def test_a_folder_that_cannot_be_made(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "kept"))
        assert compile(PRODUCT) == compile(PRODUCT)

    def test_reading_one_takes_no_compiler(self, store: Cache) -> None:
        compile(PRODUCT)
        code = f"import sys, warploom.runtime as w; w.compile({PRODUCT!r}); print('xdsl' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"


def tuned(folder: Path) -> Path:
    path = folder / "tuned.json"
    path.write_text('{"format": 1, "devices": {}}')
    return path


class TestEntries:
    # of some characters: drawn of all, hypothesis makes a table of Unicode first, which takes two seconds
    @settings(max_examples=20)
    @given(st.dictionaries(st.text("a/.\\\0\né€𝄞", max_size=5), st.binary(max_size=40), max_size=4))
    def test_any_parts(self, tmp_path_factory: pytest.TempPathFactory, parts: dict[str, bytes]) -> None:
        store = Cache(tmp_path_factory.getbasetemp() / "any")
        store.put("key", parts)
        assert store.get("key") == parts
        assert store.get("other") is None

    @pytest.mark.parametrize("at", [0, 40, 64, 70, 100, -1])
    def test_damage_is_dropped(self, tmp_path: Path, at: int) -> None:
        store = Cache(tmp_path)
        store.put("key", {"a": b"x" * 50, "b": b""})
        (entry,) = store.entries()
        data = bytearray(entry.path.read_bytes())
        data[at] ^= 1
        # between the checksum and what it is of stands a line break, which says nothing
        expected = {"a": b"x" * 50, "b": b""} if at == 64 else None
        entry.path.write_bytes(data)
        assert store.get("key") == expected
        assert len(store.entries()) == (at == 64)

    @pytest.mark.parametrize("size", [0, 10, 64, 65, 90])
    def test_so_is_what_was_cut_short(self, tmp_path: Path, size: int) -> None:
        store = Cache(tmp_path)
        store.put("key", {"a": b"x" * 50})
        (entry,) = store.entries()
        entry.path.write_bytes(entry.path.read_bytes()[:size])
        assert store.get("key") is None
        assert store.entries() == []

    def test_no_code_of_an_entry_runs(self, tmp_path: Path) -> None:
        class Code:
            def __reduce__(self) -> tuple[object, ...]:
                return os.mkdir, (str(tmp_path / "made"),)

        for held in (Code(), Cache, os.getcwd, [Code()]):
            Cache(tmp_path).put("key", held)
            assert (Cache(tmp_path).get("key") is None) == (held is not Cache)
        assert list(tmp_path.iterdir()) == []

    def test_what_was_used_least_recently_goes_first(self, tmp_path: Path) -> None:
        store = Cache(tmp_path, limit=700)
        for number, key in enumerate("abcd"):
            store.put(key, {"x": bytes(100)})
            os.utime(tmp_path / f"{key}.entry", (1e9 + number, 1e9 + number))
        assert [entry.path.stem for entry in store.entries()] == ["b", "c", "d"]
        assert store.get("b") is not None
        store.put("e", {"x": bytes(100)})
        kept = {entry.path.stem for entry in store.entries()}
        assert "b" in kept
        assert "c" not in kept
        assert sum(entry.bytes for entry in store.entries()) <= 700

    def test_entries_are_counted_once_a_share_of_the_limit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not at each entry, which takes as long as there are entries; the limit holds but for that share."""
        limit, counted = 64_000, list[int]()
        monkeypatch.setattr(Cache, "entries", lambda store, plain=Cache.entries: counted.append(1) or plain(store))
        for number in range(200):
            Cache(tmp_path, limit).put(f"key{number}", {"x": bytes(400)})
        size = len((tmp_path / "key199.entry").read_bytes())
        assert 200 * size > limit
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit + limit // 64 + size
        assert 1 < len(counted) <= 200 * size // (limit // 64) + 1

    def test_what_is_larger_than_all_is_not_kept(self, tmp_path: Path) -> None:
        store = Cache(tmp_path, limit=700)
        store.put("small", {"x": b""})
        store.put("large", {"x": bytes(1000)})
        assert [entry.path.stem for entry in store.entries()] == ["small"]

    def test_a_full_disk_keeps_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def half(path: Path, data: bytes) -> None:
            path.open("wb").write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_bytes", half)
            Cache(tmp_path).put("some", {"data": b"0123"})
        assert list(tmp_path.iterdir()) == []
        assert Cache(tmp_path).get("some") is None

    def test_a_home_that_there_is_not(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv(cache.VARIABLE, "~no user is called this/kept")
        assert main(["cache"]) == 1
        assert capsys.readouterr().err == (
            "error: WARPLOOM_CACHE: no user has the home folder in '~no user is called this/kept'\n"
        )

    def test_what_a_writer_left_behind_goes(self, tmp_path: Path) -> None:
        store, fresh, old = Cache(tmp_path), tmp_path / "new.part", tmp_path / "old.part"
        for path in (fresh, old):
            path.write_bytes(b"")
        os.utime(old, (time.time() - 4000, time.time() - 4000))
        store.put("key", {})
        assert (fresh.exists(), old.exists()) == (True, False)
        assert store.clear() == 1
        assert list(tmp_path.iterdir()) == []

    def test_writers_and_readers_at_once(self, tmp_path: Path) -> None:
        """Each reads nothing or something whole, whatever others do meanwhile."""
        wrong: list[object] = []

        def work(number: int) -> None:
            store = Cache(tmp_path, limit=5000)
            for turn in range(40):
                store.put(f"key{turn % 3}", {"a": bytes([number]) * 1000, "b": bytes([number])})
                entry = store.get(f"key{(turn + number) % 3}")
                if entry is not None and (set(entry["a"]) != set(entry["b"]) or len(entry["a"]) != 1000):
                    wrong.append(entry)
                if turn % 20 == number:
                    store.clear()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert not list(tmp_path.glob("*.part"))


class TestMachineCode:
    def test_it_is_kept_by_assembler(self, store: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        runs = tmp_path / "runs"
        assembler = tmp_path / "ptxas"
        assembler.write_text(
            f'#!/bin/sh\necho x >> {runs}\necho "Compiling entry function \'k\'"\necho "Used 7 registers"\n'
            'while [ "$1" != -o ]; do shift; done\nprintf code > $2\n'
        )
        assembler.chmod(0o755)
        monkeypatch.setattr(ptxas, "find", lambda: assembler)
        for _ in range(2):
            made = ptxas.machine_code("ptx", "sm_90a")
            assert (made.cubin, made.resources["k"].registers) == (b"code", 7)
        assert runs.read_text() == "x\n"
        ptxas.machine_code("ptx", "sm_80")
        os.utime(assembler, (1e9, 1e9))
        ptxas.machine_code("ptx", "sm_80")
        assert runs.read_text() == "x\nx\nx\n"
        assert len(store.entries()) == 3

    def test_of_a_kernel(self) -> None:
        if ptxas.find() is None:
            pytest.skip("no ptxas")
        assert compile(PRODUCT).cubin.startswith(b"\x7fELF")


class TestCommand:
    def test_shows_and_clears(self, store: Cache, capsys: pytest.CaptureFixture[str]) -> None:
        compile(PRODUCT)
        assert main(["cache"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"folder   {store.folder}\nentries  1, 0.0 MiB of at most 512.0 MiB\n")
        assert main(["cache", "--clear"]) == 0
        assert capsys.readouterr().out.endswith("dropped  1 entries\n")
        assert store.entries() == []

    def test_off(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setenv(cache.VARIABLE, "off")
        assert main(["cache"]) == 0
        assert capsys.readouterr().out == "off: WARPLOOM_CACHE is off\n"

    def test_the_platform_s_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv(cache.VARIABLE)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(sys, "platform", "linux")
        setting = cache.configured()
        assert setting is not None
        assert setting.folder.name == "warploom"

    def test_run_keeps_and_reads(
        self, store: Cache, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        monkeypatch.setattr(ptxas, "find", lambda: None)
        path = tmp_path / "a.mlir"
        path.write_text(PRODUCT)
        command = ["run", str(path), "--device", "interp", "--check"]
        assert main([*command, "--no-cache"]) == 0
        assert store.entries() == []
        outs: list[str] = []
        for _ in range(2):
            assert main(command) == 0
            outs.append(capsys.readouterr().out)
        assert len(store.entries()) == 1
        assert [" cache " in out for out in outs] == [False, True]
        assert ["warp-stage" in out for out in outs] == [True, False]


def test_the_key_depends_on_every_source_that_compiles() -> None:
    """Also where packages are links to their folders."""
    names = {Path(path).relative_to(cache.ROOT).as_posix() for path, _, _ in cache.sources()}
    assert names >= {"dialect/isa/form.py", "passes/opt.py", "runtime/base/cache.py"}


def key_of_sources(monkeypatch: pytest.MonkeyPatch, root: Path) -> str:
    monkeypatch.setattr(cache, "ROOT", root)
    return cache.compiler.__wrapped__()


def make_sources(root: Path) -> Path:
    for package in cache.PACKAGES:
        (root / package / "inner").mkdir(parents=True)
    source = root / "passes" / "inner" / "a.py"
    source.write_text("x = 1\n")
    return source


@pytest.mark.parametrize("on", [False, True])
def test_a_source_that_changes_makes_another_key(
    on: bool, store: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what it contains, whether or not a digest is kept; its time and what Python keeps beside it change nothing."""
    if not on:
        monkeypatch.setenv(cache.VARIABLE, cache.OFF)
    source = make_sources(tmp_path)
    keys = [key_of_sources(monkeypatch, tmp_path)]
    assert len(list(store.folder.glob(f"*{cache.DIGEST}"))) == on
    (source.parent / "__pycache__").mkdir()
    (source.parent / "__pycache__" / "a.py").write_text("")
    os.utime(source, ns=(1, 1))
    assert key_of_sources(monkeypatch, tmp_path) == keys[0]
    for text, name in (("x = 2\n", "a.py"), ("x = 10\n", "a.py"), ("", "b.py")):
        (source.parent / name).write_text(text)
        keys.append(key_of_sources(monkeypatch, tmp_path))
    assert len(set(keys)) == len(keys)


def test_equal_sources_in_two_places_have_one_key(
    store: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their digests are kept apart; one that is damaged is made anew."""
    sources = [make_sources(tmp_path / name) for name in "ab"]
    os.utime(sources[1], ns=(1, 1))
    keys = [key_of_sources(monkeypatch, tmp_path / name) for name in "ab"]
    assert keys[0] == keys[1]
    assert store.entries() == []
    digests = list(store.folder.glob(f"*{cache.DIGEST}"))
    assert len(digests) == 2
    for digest in digests:
        digest.write_bytes(digest.read_bytes()[:-1])
    assert [key_of_sources(monkeypatch, tmp_path / name) for name in "ab"] == keys
    store.clear()
    assert not list(store.folder.iterdir())


def test_sources_are_not_read_where_their_digest_is_kept(
    store: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sources(tmp_path)
    key = key_of_sources(monkeypatch, tmp_path)
    monkeypatch.setattr(cache, "_contents", lambda: pytest.fail("the sources are read again"))
    assert key_of_sources(monkeypatch, tmp_path) == key
    assert store.entries() == []
