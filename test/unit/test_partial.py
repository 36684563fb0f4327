"""How often the parts of a module are lowered in a partial conversion."""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp, UnregisteredOp

from warploom.passes.diagnostics import fail
from warploom.passes.partial import convert_partly
from warploom.passes.universe import make_context, parse_mlir

KERNELS = """gpu.module @m{n} {{
  gpu.func @k(%x: i32) kernel {{
    {body}
    gpu.return
  }}
}}
"""
BODIES = ("%0 = arith.addi %x, %x : i32", '%0 = "unknown.op"(%x) : (i32) -> i32', "%0 = arith.muli %x, %x : i32")
MODULES = 15


def test_modules_of_kernels_that_stay_are_tried_alone() -> None:
    """All of them, over again for each that stays, were 40 lowerings of one module here, and grow with the square."""
    context = make_context()
    context.allow_unregistered = True
    text = "".join(KERNELS.format(n=n, body=BODIES[n % len(BODIES)]) for n in range(MODULES))
    module, lowered = parse_mlir(context, f"func.func @host() {{ return }}\n{text}"), list[str]()

    def lower(part: ModuleOp) -> None:
        for kernels in (op for op in part.ops if isinstance(op, gpu.ModuleOp)):
            lowered.append(kernels.sym_name.data)
            for op in kernels.walk():
                if isinstance(op, UnregisteredOp):
                    fail(op, "its dialect is not known")
            kernels.attributes["done"] = kernels.sym_name

    convert_partly(module, lower, all_of_it=False)
    assert len(lowered) <= 2 + MODULES + MODULES
    done = {op.sym_name.data: "done" in op.attributes for op in module.ops if isinstance(op, gpu.ModuleOp)}
    assert done == {f"m{n}": n % 3 != 1 for n in range(MODULES)}
    assert str(module).count("func.func @host") == 1
