"""What an interpreted launch did, instruction by instruction: what one opens a profiler for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...base.launch import Problem


@dataclass(frozen=True)
class Executed:
    """One instruction of the text: how many warps executed it, and how many of their lanes, those aside for which its
    guard does not hold. `source` is the line that it was compiled from, if the text says so; of accesses too."""

    line: int
    column: int
    opcode: str
    warps: int
    lanes: int
    source: str = ""


@dataclass(frozen=True)
class SharedAccess:
    """The shared memory accesses of one instruction.

    `kind` is load, store, atomic or copy. `ideal` is how many wavefronts the requests of the warps would take without
    bank conflicts, `worst` how many that request took that took most.
    """

    line: int
    column: int
    opcode: str
    kind: str
    requests: int
    wavefronts: int
    ideal: int
    worst: int
    source: str = ""

    @property
    def extra(self) -> int:
        """Additional wavefronts by bank conflicts."""
        return self.wavefronts - self.ideal


@dataclass(frozen=True)
class GlobalAccess:
    """The global memory accesses of one instruction.

    `sectors` is the number of 32-byte sectors that the requests of the warps touch. `ideal` is the least number that
    could hold the requested bytes.
    """

    line: int
    column: int
    opcode: str
    kind: str
    requests: int
    sectors: int
    ideal: int
    source: str = ""

    @property
    def extra(self) -> int:
        """Sectors that a denser layout would not touch."""
        return self.sectors - self.ideal


@dataclass(frozen=True)
class MatrixProducts:
    """The number of executions of one `mma`, `mma.sp` or `wmma.mma`, and its shape (for a sparse A, the dense shape). A
    warp computes `side_by_side` such products at once."""

    opcode: str
    shape: Problem
    side_by_side: int
    warps: int

    @property
    def multiply_adds(self) -> int:
        return self.warps * self.side_by_side * self.shape.multiply_adds

    def needed(self, problem: Problem) -> int:
        """The smallest number of these instructions for a product."""
        tiles = -(-problem.m // self.shape.m) * -(-problem.n // self.shape.n) * -(-problem.k // self.shape.k)
        return -(-tiles * problem.batch // self.side_by_side)


@dataclass(frozen=True)
class LaunchReport:
    """The counts of one launch, for each instruction. docs/report.md says what is counted.

    - `instructions`: the instructions that were executed, and by how many warps and lanes.
    - `shared`, `global_`: the accesses of each instruction to shared and to global memory.
    - `products`: the matrix instructions.
    - `uncounted`: the instructions whose accesses are not counted, and why.
    - `problem`: the product that the launch computes, if that is known.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    instructions: tuple[Executed, ...]
    shared: tuple[SharedAccess, ...]
    global_: tuple[GlobalAccess, ...]
    products: tuple[MatrixProducts, ...]
    uncounted: tuple[str, ...] = ()
    problem: Problem | None = None

    def against(self, problem: Problem | None) -> LaunchReport:
        """The same report, compared with the product that the launch computes."""
        return replace(self, problem=problem)

    @property
    def mix(self) -> dict[str, int]:
        """The number of warps that executed each opcode, the most frequent first."""
        warps: dict[str, int] = {}
        for item in self.instructions:
            warps[item.opcode] = warps.get(item.opcode, 0) + item.warps
        return dict(sorted(warps.items(), key=lambda item: -item[1]))

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of all matrix instructions that were executed."""
        return sum(item.multiply_adds for item in self.products)

    @property
    def useful(self) -> float | None:
        """The fraction of the multiply-adds that the problem needs. It is None without a problem or without matrix
        instructions."""
        if self.problem is None or not self.multiply_adds:
            return None
        return self.problem.multiply_adds / self.multiply_adds

    def as_json(self) -> dict[str, Any]:
        """The report and its totals as JSON objects."""
        fields = asdict(self)
        fields["global"] = fields.pop("global_")
        fields["problem"] = self.problem and str(self.problem)
        for item, product in zip(fields["products"], self.products, strict=True):
            item |= {"shape": str(product.shape), "multiply_adds": product.multiply_adds}
            item["needed"] = self.problem and product.needed(self.problem)
        return {
            **fields,
            "mix": self.mix,
            "multiply_adds": self.multiply_adds,
            "useful": self.useful,
            "wavefronts": total(self.shared, "wavefronts"),
            "wavefronts_extra": total(self.shared, "extra"),
            "sectors": total(self.global_, "sectors"),
            "sectors_extra": total(self.global_, "extra"),
        }


def total(items: Sequence[SharedAccess | GlobalAccess], name: str) -> int:
    """The sum of one of the counts."""
    return sum(getattr(item, name) for item in items)
