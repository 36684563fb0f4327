"""The interpreter: it runs PTX on the CPU, with the arithmetic of the target.

module = parse_ptx(text, "k.ptx")
program = load(module, "k.ptx")
program.launch(Launch("k", (4, 1, 1), (32, 1, 1), 0, (0, 1, 2)), values(module.functions["k"], [a, b, 3]))
"""

from ..numerics.product import Arithmetic, arithmetic
from .machine.machine import Stats
from .machine.memory import InterpreterError
from .program import Program, load

__all__ = ["Arithmetic", "InterpreterError", "Program", "Stats", "arithmetic", "load"]
