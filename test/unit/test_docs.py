"""The generated pages of docs/ are those that the rows give."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from warploom import runtime
from warploom.passes.universe import WARPLOOM_UNIVERSE
from warploom.runtime.interp.watch.checks import CHECKS

DOCS = Path(__file__).parents[2] / "docs"
MIB = 1 << 20
LINK = re.compile(r"\]\((?!https?:)([^)\s]*)\)")


def script(name: str) -> ModuleType:
    """A script of docs/ as a module: other folders on the path have scripts of the same names."""
    spec = spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(name)
    module = module_from_spec(spec)
    sys.modules[f"docs_{name}"] = module
    spec.loader.exec_module(module)
    return module


@cache
def pages() -> dict[str, str]:
    """What docs/generate.py would write."""
    return script("generate").pages()


def test_the_walk_through_the_pipeline_shows_what_is_printed_now() -> None:
    text = "".join(script("walk").page()).rstrip() + "\n"
    assert (DOCS / "pipeline.md").read_text(encoding="utf-8") == text, "run `make docs`"
    for step in WARPLOOM_UNIVERSE.all_passes:
        assert step in text


def test_the_page_on_attention_shows_what_is_printed_now() -> None:
    text = "".join(script("attention_walk").page()).rstrip() + "\n"
    assert (DOCS / "attention.md").read_text(encoding="utf-8") == text, "run `make docs`"


@pytest.mark.slow
def test_pictures_are_those_that_are_drawn_now() -> None:
    made, folder = script("draw").pictures(), DOCS / "pictures"
    assert {path.name for path in folder.glob("*")} == made.keys(), "run `make docs`"
    stale = [name for name, text in made.items() if (folder / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run `make docs`"


def test_the_reference_is_what_definitions_and_docstrings_say() -> None:
    made, folder = script("reference").pages(), DOCS / "reference"
    assert {path.name for path in folder.glob("*")} == made.keys(), "run `make docs`"
    stale = [name for name, text in made.items() if (folder / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run `make docs`"
    assert all(f"### {name}\n" in made["python.md"] for name in runtime.__all__)
    assert all(name in made["commands.md"].partition("--max-steps")[0] for name in CHECKS)
    assert all(
        f"### {op.name}\n" in made["operations.md"] for op in WARPLOOM_UNIVERSE.all_dialects["warp"]().operations
    )


def test_the_limits_are_those_that_there_are() -> None:
    text = "".join(script("limits").page()).rstrip() + "\n"
    assert (DOCS / "limits.md").read_text(encoding="utf-8") == text, "run `make docs`"


LOWERED = {
    "a loop that adds to memory": (
        "%A: memref<8x8xf16>, %B: memref<8x8xf16>, %C: memref<8x8xf32>",
        "%z = arith.constant 0 : index %o = arith.constant 1 : index %n = arith.constant 4 : index "
        "scf.for %i = %z to %n step %o { linalg.matmul ins(%A, %B : memref<8x8xf16>, memref<8x8xf16>) "
        "outs(%C : memref<8x8xf32>) }",
    ),
    "dynamic strides of rows": (
        "%A: memref<8x8xf16, strided<[?, 1], offset: ?>>, %B: memref<8x8xf16>, %C: memref<8x8xf32>",
        "linalg.matmul ins(%A, %B : memref<8x8xf16, strided<[?, 1], offset: ?>>, memref<8x8xf16>) "
        "outs(%C : memref<8x8xf32>)",
    ),
    "dynamic strides of elements": (
        "%A: memref<8x8xf32, strided<[?, ?]>>, %C: memref<8x8xf32>",
        "linalg.exp ins(%A : memref<8x8xf32, strided<[?, ?]>>) outs(%C : memref<8x8xf32>)",
    ),
    "elements of i32": (
        "%A: memref<8x8xi32>, %C: memref<8x8xi32>",
        "linalg.add ins(%A, %A : memref<8x8xi32>, memref<8x8xi32>) outs(%C : memref<8x8xi32>)",
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", LOWERED)
def test_what_the_limits_say_is_lowered_is(case: str) -> None:
    arguments, body = LOWERED[case]
    assert runtime.compile(f"func.func @f({arguments}) {{ {body} return }}").plan.launches


def test_the_readme_has_the_shares_that_were_measured() -> None:
    for page in (DOCS.parent / "README.md", DOCS / "torch.md", DOCS.parent / "bench" / "RESULTS.md"):
        assert page.read_text(encoding="utf-8") == script("shares").text(page), "run `make docs`"


def test_every_page_is_on_the_index() -> None:
    linked = set(LINK.findall((DOCS / "index.md").read_text()))
    pages = {*DOCS.glob("*.md"), *(DOCS / "reference").glob("*.md")} - {DOCS / "index.md"}
    assert (
        sorted(page.relative_to(DOCS).as_posix() for page in pages if page.relative_to(DOCS).as_posix() not in linked)
        == []
    )


@cache
def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_between_pages_lead_somewhere() -> None:
    pages = [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *(DOCS.parent / "bench").rglob("*.md")]
    pages += [*DOCS.glob("*.md"), *(DOCS / "reference").glob("*.md")]
    links = [(page, *link.partition("#")[::2]) for page in pages for link in LINK.findall(page.read_text())]
    targets = [(page, page.parent / path if path else page, anchor) for page, path, anchor in links]
    assert [(page.name, target) for page, target, _ in targets if not target.exists()] == []
    inside = [(page, target, anchor) for page, target, anchor in targets if anchor and target.suffix == ".md"]
    assert [(page.name, anchor) for page, target, anchor in inside if anchor not in headings(target)] == []


def test_what_is_committed_is_what_is_generated() -> None:
    committed = {
        path.relative_to(DOCS).as_posix()
        for path in (
            DOCS / "isa.md",
            DOCS / "arithmetic.md",
            DOCS / "schedules.md",
            *(DOCS / "isa").glob("*"),
            *(DOCS / "fragments").glob("*"),
        )
    }
    assert committed == pages().keys(), "run `make docs`"
    stale = [name for name, text in pages().items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run `make docs`"


def test_the_gallery_is_small_and_shows_every_picture() -> None:
    pictures = {name: text for name, text in pages().items() if name.endswith(".svg")}
    assert sum(len(text.encode()) for text in pictures.values()) < 3 * MIB
    shown = re.findall(r"\]\(([^)]*\.svg)\)", pages()["fragments/index.md"])
    assert sorted(f"fragments/{name}" for name in shown) == sorted(pictures)


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((isa/[^)]*)\)", pages()["isa.md"])
    assert links
    assert set(links) <= pages().keys()


def test_the_versions_of_python_that_are_declared() -> None:
    """The oldest is the one required, as README says too."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [line.removeprefix("Programming Language :: Python :: ") for line in project["classifiers"]]
    assert project["requires-python"] == f">={declared[0]}"
    assert f"Python {declared[0]} or newer" in (DOCS.parent / "README.md").read_text(encoding="utf-8")
