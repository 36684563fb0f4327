"""The functions that lower operations: each is where the registry looks for it."""

from importlib import import_module

import pytest

from warploom.passes.to_ptx.registry import HANDLERS, MODULES


@pytest.mark.parametrize("module", dict.fromkeys(MODULES.values()))
def test_a_module_registers_the_operations_that_it_is_imported_for(module: str) -> None:
    path = import_module(f"warploom.passes.to_ptx.{module}").__name__
    registered = {name for name, handle in HANDLERS.items() if handle.__module__ == path}
    assert registered == {name for name, home in MODULES.items() if home == module}
