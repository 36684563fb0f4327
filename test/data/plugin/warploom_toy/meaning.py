"""What `twice` does on the interpreter, and a check that finds each one."""

from warploom.runtime.interp.meaning.access import computes
from warploom.runtime.interp.watch.findings import Check


@computes("toy.twice")
def twice(ctx, bound):
    return lambda x: x + x


class NoToys(Check):
    """Finds instructions that there are not."""

    name = "no-toys"

    def begun(self) -> None:
        for pc, instruction in enumerate(self.kernel.code):
            if instruction.traits.root == "twice":
                self.report(pc, "no GPU has it", None)
