"""PTX text under a cursor: where we are, what is expected there, and errors with their place."""

from __future__ import annotations

import re


class PtxSyntaxError(Exception):
    """Text that is not PTX. `line` and `column` count from 1."""

    def __init__(self, file: str, line: int, column: int, message: str) -> None:
        # What is quoted from the text may run over lines; a message does not.
        message = " ".join(message.split())
        super().__init__(file, line, column, message)
        self.file = file
        self.line = line
        self.column = column
        self.message = message

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: error: {self.message}"


_BLANKED = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_WORD = re.compile(r"\s*(\S[^\n]{0,30})")
_STATEMENT_END = re.compile(r"[^;{}]*+(?:\{[^;{}]*+\}[^;{}]*+)*+")
_SPACE = re.compile(r"\s*")


def _blank(match: re.Match[str]) -> str:
    """White space of the same shape for a comment, unless a `//` comment has its line to itself."""
    text = match.group()
    if text[0] == '"':
        return text
    if text[1] == "/":
        start = match.string.rfind("\n", 0, match.start()) + 1
        if not match.string[start : match.start()].strip():
            return text
    return "".join("\n" if c == "\n" else " " for c in text)


class Cursor:
    """The text and where we are in it. Errors are raised, or, where `errors` is a list, noted there."""

    def __init__(self, text: str, name: str, errors: list[PtxSyntaxError] | None = None) -> None:
        self.text = _BLANKED.sub(_blank, text) if "/" in text else text
        self.name = name
        self.position: int = 0
        self.line: int = 1
        self.line_at: int = 0
        self.errors = errors

    # Positions and errors

    def line_of(self, position: int) -> int:
        """The line at a position not before the last one asked for."""
        self.line += self.text.count("\n", self.line_at, position)
        self.line_at = position
        return self.line

    def column(self, position: int) -> int:
        """The column of a position, from 1."""
        return position - self.text.rfind("\n", 0, position)

    def skipped(self, position: int) -> int:
        """The first position from `position` on that is not white space."""
        space = _SPACE.match(self.text, position)
        return space.end() if space else position

    def error(self, message: str, position: int | None = None) -> PtxSyntaxError:
        at = self.position if position is None else position
        at = self.skipped(at)
        return PtxSyntaxError(self.name, self.text.count("\n", 0, at) + 1, self.column(at), message)

    def found(self) -> str:
        word = _WORD.match(self.text, self.position)
        return f"'{word.group(1).rstrip()}'" if word else "the end of the file"

    def expect(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.match(self.text, self.position)
        if match is None:
            raise self.error(f"expected {what}, got {self.found()}")
        self.position = match.end()
        return match

    def expect_text(self, text: str, what: str) -> None:
        stripped = self.skip_space()
        if not self.text.startswith(text, stripped):
            raise self.error(f"expected '{text}' {what}, got {self.found()}")
        self.position = stripped + len(text)

    def skip_space(self) -> int:
        self.position = self.skipped(self.position)
        return self.position

    # Going on after an error

    def note(self, error: PtxSyntaxError) -> None:
        """Raises an error, or keeps it where what comes after is to be read too."""
        if self.errors is None:
            raise error
        self.errors.append(error)

    def skip_statement(self, start: int) -> None:
        """Goes behind the `;` of the statement at `start`, or to the `}` that ends its function before one."""
        match = _STATEMENT_END.match(self.text, start)
        end = match.end() if match else start
        self.position = min(max(end + (self.text[end : end + 1] != "}"), start + 1), len(self.text))

    def skip_item(self, start: int) -> None:
        """Goes behind what stands at `start` outside of functions: a `;`, or all that its braces hold."""
        text, at, depth = self.text, start, 0
        while at < len(text):
            character = text[at]
            depth += {"{": 1, "}": -1}.get(character, 0)
            at += 1
            if depth <= 0 and character in ";}":
                break
        self.position = at
