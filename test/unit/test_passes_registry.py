"""The functions that lower operations: each is where the index looks for it; and what modules have for passes to do."""

from importlib import import_module

import index
import pytest

from warploom.dialect.index import LOWERINGS
from warploom.passes.pipeline import can_apply
from warploom.passes.to_ptx.kernel import HANDLERS
from warploom.passes.universe import make_context, parse_mlir


@pytest.mark.parametrize("module", dict.fromkeys(LOWERINGS.values()))
def test_a_module_registers_the_operations_that_it_is_imported_for(module: str) -> None:
    path = import_module(f"warploom.{module}").__name__
    registered = {name for name, handle in HANDLERS.items() if handle.__module__ == path}
    assert registered == {name for name, home in LOWERINGS.items() if home == module}


def test_the_index_is_what_the_code_has() -> None:
    assert index.HERE.read_text() == index.text()


@pytest.mark.parametrize(
    ("a", "b", "c", "factors", "sums", "reduces"),
    [
        ("m, k", "n, k", "m, n", "bf16", "f32", False),
        ("k", "k, n", "n", "f32", "f32", False),
        ("m, k", "m, k", "m", "bf16", "f32", True),
        ("m, k", "k, n", "m, n", "f32", "bf16", True),
    ],
)
def test_rows_are_looked_for_where_sums_are_no_products(
    a: str, b: str, c: str, factors: str, sums: str, reduces: bool
) -> None:
    """Dot products are of rows, and so are sums that round each product."""
    loops = ", ".join(sorted({*f"{a}, {b}".split(", ")}))
    maps = ", ".join(f"affine_map<({loops}) -> ({each})>" for each in (a, b, c))
    kinds = [f"memref<{'24x' * len(x.split(', '))}{t}>" for x, t in ((a, factors), (b, factors), (c, sums))]
    text = f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      linalg.contract indexing_maps = [{maps}] ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]})
      return
    }}"""
    assert can_apply("warp-fuse-rows", parse_mlir(make_context(), text, "f.mlir")) is reduces
