"""`warploom judge --mcp`: the same answers for a client of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..base.errors import ArgumentError

SPARE = 120.0
"""Seconds for the judge besides the candidate's."""


async def judge(
    candidate: str, reference: str, options: list[str] | None = None, seconds: float = 60.0, megabytes: int = 4096
) -> dict[str, Any]:
    """Judge whether a GPU kernel or a Python function computes what a reference says.

    `candidate` is the path of a .ptx, .cu or .py file (FILE.py:NAME for one function), `reference` that of an .mlir or
    .py file. `options` are those of the command `warploom judge`, such as ["--grid", "4", "--block", "128", "--in",
    "A=random:f32:{M}x{K}", "--size", "M=33,K=64"]. The answer has `passed`, the `codes` of what is wrong, and
    `findings` with a sentence and a place each; or `error`, if the question cannot be answered.
    """
    command = [
        *(sys.executable, "-m", "warploom", "judge", candidate, reference, "--json"),
        *("--seconds", str(seconds), "--megabytes", str(megabytes), *(options or ())),
    ]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        out, errors = await asyncio.wait_for(process.communicate(), seconds + SPARE)
    except TimeoutError:
        process.kill()
        return {"error": f"no verdict in {seconds + SPARE:g} seconds"}
    lines = (out if process.returncode in (0, 1) else errors).decode().strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"error": "\n".join(lines) or f"the judge ended with code {process.returncode}"}


def serve() -> None:
    """Answers a client on standard input and output.

    Raises:
        ArgumentError: without the package `mcp`.
    """
    if find_spec("mcp") is None:
        raise ArgumentError("the server needs the package mcp: pip install 'warploom[mcp]'")
    server: Any = import_module("mcp.server.mcpserver").MCPServer("warploom")
    server.tool()(judge)
    server.run(transport="stdio")
