"""Declarations in PTX text: variables, registers, parameters. Source: PTX ISA 5.1 to 5.5, 7.1."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..types import REGISTER_BITS, extent
from .cursor import Cursor, PtxSyntaxError
from .operands import IDENTIFIER
from .syntax import WARP_SIZE, RegDecl, Variable, integer

MOST_REGISTERS = 1 << 20
"""Registers that one declaration may make; far more than compilers do, and what memory is made for."""

UNREAD = ""
"""The type of registers whose declaration names none that there is."""

_ATTRIBUTE = r"(?:\s*\.attribute\s*\(\s*(?P<{}>\.[a-z]\w*(?:\s*\([^()]*\))?)\s*\))?"
VARIABLE = re.compile(
    r"\s*" + _ATTRIBUTE.format("before") + r"\s*(?:\.(?P<linking>visible|extern|weak|common)\s+)?"
    r"\.(?P<space>global|shared|const|local|param|reg)(?P<cta>::\w+)?" + _ATTRIBUTE.format("attribute")
    + r"(?:\s*\.align\s+(?P<align>\d+))?" + _ATTRIBUTE.format("after")
    + r"(?:\s*\.v(?P<vector>[24]))?\s*\.(?P<type>\w+)"
    r"(?P<pointer>\s*\.ptr(?:\s*\.(?:global|shared|const|local|texref|surfref|samplerref))?(?:\s*\.align\s+\d+)?)?",
    re.ASCII,
)  # fmt: skip
_DECLARATOR = re.compile(
    rf"\s*(?P<name>{IDENTIFIER})\s*(?:<\s*(?P<count>\d+)\s*>)?(?P<dims>(?:\s*\[[^\]\n;]*\])*)\s*", re.ASCII
)
_INITIALISER_END = re.compile(r"[^,;{}()]*+(?:\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\}|\([^()]*+\)|[^,;{}()]*+)*+", re.ASCII)


class DeclarationReader(Cursor):
    """Reads declarations at the cursor."""

    def declared(self) -> Iterator[Variable | RegDecl]:
        """The variables or registers of one statement."""
        head = self.expect(VARIABLE, "a declaration such as '.shared .align 16 .b8 name[64];'")
        line = self.line_of(self.skipped(head.start()))
        while True:
            tail = self.expect(_DECLARATOR, "the name of a variable")
            if head["space"] == "reg":
                yield self.register(head, tail, line)
            else:
                yield self.variable(head, tail, self.initialiser(), line)
            if not self.text.startswith(",", self.skip_space()):
                break
            self.position += 1
        self.expect_text(";", "after the declaration")

    def parameter(self, text: str, offset: int) -> Variable:
        """One of the parameters of a function, whose text stands at `offset`."""
        head = VARIABLE.match(text)
        tail = head and _DECLARATOR.fullmatch(text, head.end())
        if not head or not tail:
            raise self.error(f"expected a parameter such as '.param .u64 name', got '{text.strip()}'", offset)
        at = self.skipped(offset)
        return self.variable(head, tail, None, self.text.count("\n", 0, at) + 1, offset)

    def register(self, head: re.Match[str], tail: re.Match[str], line: int) -> RegDecl:
        type, count = head["type"], None if tail["count"] is None else int(tail["count"])
        if type not in REGISTER_BITS:
            known = ", ".join(f".{name}" for name in REGISTER_BITS)
            self.note(self.error(f"'.{type}' is not a register type; expected one of {known}", head.start("type")))
            type = UNREAD
        if count is not None and count > MOST_REGISTERS:
            raise self.error(
                f"{count} registers are declared, expected at most {MOST_REGISTERS} at once", tail.start("count")
            )
        if head["align"] and int(head["align"]).bit_count() != 1:
            self.note(self.error(f"the alignment must be a power of two, got {head['align']}", head.start("align")))
        return RegDecl(type, tail["name"], count, line, int(head["vector"] or 1), self.column(tail.start("name")))

    def variable(
        self, head: re.Match[str], tail: re.Match[str], init: str | None, line: int, offset: int = 0
    ) -> Variable:
        extents = tuple(
            self.extent(d.strip(), tail["name"], offset + tail.start("dims"))
            for d in re.findall(r"\[([^\]]*)\]", tail["dims"])
        )
        align = head["align"]
        return Variable(
            head["space"] + (head["cta"] or ""),
            head["type"],
            tail["name"],
            count=extent(extents) if extents else None,
            align=int(align) if align else None,
            linking=head["linking"] or "",
            vector=int(head["vector"] or 1),
            init=init,
            pointer=" ".join((head["pointer"] or "").split()),
            line=line,
            dimensions=extents if len(extents) > 1 else (),
            attribute="".join((head["before"] or head["attribute"] or head["after"] or "").split()),
            column=self.column(self.skipped(offset + head.start())),
        )

    def extent(self, text: str, name: str, position: int) -> int:
        """The elements of one dimension of an array, a literal as ptxas wants it; 0 where it is left open."""
        if text in WARP_SIZE:
            return WARP_SIZE[text]
        try:
            if text.startswith(("-", "+")):
                raise ValueError(text)
            return integer(text) if text else 0
        except ValueError:
            complaint = f"variable '{name}': expected a size such as [64], got '[{text}]'"
            raise self.error(complaint, position) from None

    def initialiser(self) -> str | None:
        if not self.text.startswith("=", self.skip_space()):
            return None
        start = self.position + 1
        end = _INITIALISER_END.match(self.text, start)
        self.position = end.end() if end else start
        return " ".join(self.text[start : self.position].split())


__all__ = ["MOST_REGISTERS", "UNREAD", "VARIABLE", "DeclarationReader", "PtxSyntaxError"]
