"""Products at the levels of the pipeline, for the pages that quote them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

import ml_dtypes
import numpy as np

from warploom.dialect.ptx.printer import PtxTarget
from warploom.passes.pipeline import lower, standard_pipeline
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import LaunchTrace, compile

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "matmul.mlir"
TARGET = "sm_90a"


@dataclass(frozen=True)
class Walk:
    """An example with a schedule, given as option = value, for a target."""

    options: tuple[tuple[str, str], ...]
    example: Path = EXAMPLE
    target: str = TARGET

    @property
    def schedule(self) -> str:
        """As `--schedule` takes it."""
        return " ".join(f"{name}={value}" for name, value in self.options)

    @property
    def passes(self) -> list[str]:
        """The standard pipeline with this schedule, pass by pass."""
        return re.findall(r"[\w-]+(?:\{[^}]*\})?", standard_pipeline(self.target, dict(self.options)))

    def until(self, name: str) -> str:
        """The passes up to the one of that name, as `-p` takes them."""
        names = [one.partition("{")[0] for one in self.passes]
        return ",".join(self.passes[: names.index(name) + 1])

    def level(self, after: str) -> str:
        """The module after the pass of that name, all those before it included."""
        return _lowered(self.example, self.until(after), ptx=False)

    def ptx(self) -> str:
        """The PTX text."""
        return _lowered(self.example, ",".join(self.passes), ptx=True)

    def trace(self) -> LaunchTrace:
        """What the CTAs do over time, on zeros."""
        kernel = compile(self.example.read_text(), self.target, **dict(self.options))  # pyright: ignore[reportArgumentType]
        names = {"f16": np.float16, "f32": np.float32, "bf16": ml_dtypes.bfloat16}
        arrays = [np.zeros([int(n) for n in p.shape or ()], names[p.element]) for p in kernel.function.parameters]
        return kernel(*arrays, device="interp", trace=True).traces[0]


WARPS = Walk((("mma", "m16n8k16"), ("cta", "64,64,32"), ("warp", "32,32"), ("stages", "3")))
"""With `mma.sync`: small enough to read."""

WARPGROUPS = Walk((("cta", "128,64,64"), ("warp", "64,64"), ("mma", "m64n64k16"), ("stages", "3"), ("ctas", "5")))
"""With `wgmma`, tensor copies and warp specialisation; five CTAs compute two tiles each."""


ATTENTION = Walk((("cta", "32,64,64"), ("stages", "2")), HERE.parent / "examples" / "attention.mlir", "sm_80")
"""The example of attention, with `mma.sync`, one warp a CTA."""

ATTENTION_IN_TURNS = Walk(
    (
        ("cta", "128,64,64"), ("mma", "m64n64k16"), ("stages", "2"), ("consumers", "pingpong"), ("ctas", "2"),
    ),
    ATTENTION.example,
)  # fmt: skip
"""With `wgmma`, tensor copies, and two warpgroups that take turns; two CTAs compute two tiles each."""


@cache
def _lowered(example: Path, pipeline: str, ptx: bool) -> str:
    context = make_context()
    module = parse_mlir(context, example.read_text())
    lower(module, context, pipeline)
    if not ptx:
        return f"{module}\n".replace("\t", "")
    out = StringIO()
    PtxTarget().emit(context, module, out)
    return out.getvalue()


def quoted(text: str, patterns: Sequence[str], width: int = 170) -> str:
    """The first line after the last one found that each pattern matches, `...` where lines are left out.

    Raises:
        ValueError: if a pattern matches no line that is left.
    """
    lines, shown, at = text.splitlines(), list[str](), 0
    for pattern in patterns:
        position = next((i for i in range(at, len(lines)) if re.search(pattern, lines[i])), None)
        if position is None:
            raise ValueError(f"no line of this level matches '{pattern}' any more")
        if position > at:
            shown.append(f"{re.match(r' *', lines[position])[0]}...")  # pyright: ignore[reportOptionalSubscript]
        line = lines[position]
        shown.append(line if len(line) <= width else f"{line[: width - 4]} ...")
        at = position + 1
    return "\n".join(shown) + "\n"


def prose(text: str) -> str:
    """Paragraphs, with an empty line after them."""
    return f"{text.strip()}\n\n"


def block(language: str, text: str) -> str:
    """A code block, with an empty line after it."""
    return f"```{language}\n{text}```\n\n"
