"""Operations whose assembly formats are parsed late."""

import os
import subprocess
import sys
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", ["1", "3"])
def test_operands_of_a_row_stand_in_the_order_of_its_text_whatever_strings_hash_to(seed: str) -> None:
    """The order of operands decides the generic form; one of these names begins as another."""
    script = (
        "from warploom.dialect.mlir.gpu_carried import OPERATIONS\n"
        "op, = (op for op in OPERATIONS if op.name == 'gpu.spgemm_work_estimation_or_compute')\n"
        "print(*(name for name, _ in op.get_irdl_definition().operands))"
    )
    environment = os.environ | {"PYTHONHASHSEED": seed}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert run.stdout.split() == ["asyncDependencies", "desc", "spmatA", "spmatB", "spmatC", "bufferSz", "buffer"]
