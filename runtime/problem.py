"""The sizes of a matrix product."""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import ArgumentError


class Problem(NamedTuple):
    """A matrix product, C (m, n) += A (m, k) * B (k, n), or a batch of them."""

    m: int
    n: int
    k: int
    batch: int = 1

    @staticmethod
    def parse(text: str) -> Problem:
        """Reads `512x512x256`, or `8x512x512x256` for a batch of 8.

        Raises:
            ArgumentError: if the text is not of that form.
        """
        sizes = [int(size) for size in text.split("x") if re.fullmatch(r"[0-9]{1,18}", size)]
        if len(sizes) != text.count("x") + 1 or len(sizes) not in (3, 4) or 0 in sizes:
            raise ArgumentError(f"expected the sizes of a product as MxNxK, such as 512x512x256, got '{text}'")
        return Problem(*sizes[-3:], *sizes[:-3])

    @property
    def multiply_adds(self) -> int:
        return self.batch * self.m * self.n * self.k

    def __str__(self) -> str:
        return f"{f'{self.batch}x' if self.batch > 1 else ''}{self.m}x{self.n}x{self.k}"
