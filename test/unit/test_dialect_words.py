"""Operations whose assembly formats are parsed late."""

from importlib import import_module

import pytest
from xdsl.irdl import IRDLOperation
from xdsl.irdl.declarative_assembly_format import FormatProgram

from warploom.dialect.index import DIALECTS


@pytest.mark.parametrize("name", DIALECTS)
def test_every_format_of_a_dialect_can_be_parsed(name: str) -> None:
    module, dialect = DIALECTS[name]
    for op in getattr(import_module(f"warploom.{module}"), dialect).operations:
        if issubclass(op, IRDLOperation) and (text := op.get_irdl_definition().assembly_format) is not None:
            assert FormatProgram.from_str(text, op.get_irdl_definition()).stmts
