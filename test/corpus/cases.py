"""Every case: importing this module fills `case.CASES`."""

from importlib import import_module

from corpus.case import CASES

for _file in (
    "warp",
    "groups",
    "blocks",
    "atomics",
    "integers",
    "floats",
    "language",
    "functions",
    "managed",
    "async",
    "hopper",
    "warpgroups",
    "triton",
    "triton_hopper",
    "triton_blackwell",
    "cute",
):
    import_module(f"corpus.cases_{_file}")

__all__ = ["CASES"]
