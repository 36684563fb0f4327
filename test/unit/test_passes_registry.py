"""The functions that lower operations: each is where the index looks for it."""

from importlib import import_module

import index
import pytest

from warploom.dialect.index import LOWERINGS
from warploom.passes.to_ptx.kernel import HANDLERS


@pytest.mark.parametrize("module", dict.fromkeys(LOWERINGS.values()))
def test_a_module_registers_the_operations_that_it_is_imported_for(module: str) -> None:
    path = import_module(f"warploom.{module}").__name__
    registered = {name for name, handle in HANDLERS.items() if handle.__module__ == path}
    assert registered == {name for name, home in LOWERINGS.items() if home == module}


def test_the_index_is_what_the_code_has() -> None:
    assert index.HERE.read_text() == index.text()
