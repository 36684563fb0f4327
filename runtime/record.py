"""A kernel as parts that a file can hold, JSON and text, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from ..dialect.isa.tensor_map import TensorMapFields
from ..dialect.schedule import Schedule
from .arguments.parameter import Parameter
from .kernel import Kernel
from .launch import Launch, Mapped, Passed, Plan, ScratchBuffer, Shifted, Word
from .problem import Problem
from .signature import Signature

FACTS, PTX, HOST = "kernel.json", "kernel.ptx", "host.mlir"


def parts_of(kernel: Kernel) -> dict[str, bytes]:
    """The parts of a kernel, all but the name that messages call it by."""
    return {FACTS: json.dumps(facts_of(kernel)).encode(), PTX: kernel.ptx.encode(), HOST: kernel.host.encode()}


def facts_of(kernel: Kernel) -> dict[str, object]:
    """How a kernel is called and launched, for JSON."""
    return {
        "target": kernel.target,
        "function": _signature(kernel.function),
        "plan": {
            "launches": [_launch(launch) for launch in kernel.plan.launches],
            "scratch": [{**buffer._asdict(), "data": buffer.data.hex()} for buffer in kernel.plan.scratch],
            "dynamic": kernel.plan.dynamic,
        },
        "schedules": {name: None if held is None else str(held) for name, held in kernel.schedules.items()},
    }


def kernel_of(parts: Mapping[str, bytes], name: str) -> Kernel:
    """The kernel that parts describe, called `name` in messages."""
    facts = cast("dict[str, Any]", json.loads(parts[FACTS]))
    plan = facts["plan"]
    return Kernel(
        function=_read_signature(facts["function"]),
        plan=Plan(
            tuple(_read_launch(launch) for launch in plan["launches"]),
            tuple(ScratchBuffer(b["bytes"], b["zeroed"], bytes.fromhex(b["data"])) for b in plan["scratch"]),
            plan["dynamic"],
        ),
        schedules={name: None if text is None else Schedule.parse(text) for name, text in facts["schedules"].items()},
        ptx=parts[PTX].decode(),
        target=facts["target"],
        name=name,
        host=parts[HOST].decode(),
    )


def _signature(function: Signature) -> dict[str, object]:
    return {
        "name": function.name,
        "parameters": [asdict(parameter) for parameter in function.parameters],
        "written": sorted(function.written),
        "filled": sorted(function.filled),
        "products": [product._asdict() for product in function.products],
        "ties": [sorted(tie) for tie in function.ties],
        "sparse": function.sparse,
    }


def _read_signature(facts: dict[str, Any]) -> Signature:
    return Signature(
        name=facts["name"],
        parameters=tuple(
            Parameter(**{**p, "shape": _tuple(p["shape"]), "strides": _tuple(p["strides"])})
            for p in facts["parameters"]
        ),
        written=frozenset(facts["written"]),
        filled=frozenset(facts["filled"]),
        products=tuple(Problem(**sizes) for sizes in facts["products"]),
        ties=tuple(frozenset((i, d) for i, d in tie) for tie in facts["ties"]),
        sparse=tuple((i, element) for i, element in facts["sparse"]),
    )


def _launch(launch: Launch) -> dict[str, object]:
    return {
        "kernel": launch.kernel,
        "grid": launch.grid,
        "block": launch.block,
        "shared": launch.shared,
        "arguments": [_argument(argument) for argument in launch.arguments],
        "module": launch.module,
        "cluster": launch.cluster,
    }


def _read_launch(facts: dict[str, Any]) -> Launch:
    return Launch(
        kernel=facts["kernel"],
        grid=_tuple(facts["grid"]),
        block=_tuple(facts["block"]),
        shared=facts["shared"],
        arguments=tuple(_read_argument(argument) for argument in facts["arguments"]),
        module=facts["module"],
        cluster=_tuple(facts["cluster"]),
    )


def _argument(argument: Passed) -> object:
    """A position, [a number by value], [a position, bytes behind it], or these with the bytes of a tensor map."""
    match argument:
        case Mapped(position, distance, fields):
            return [position, distance, fields.encode().hex()]
        case Word(value):
            return [value]
        case Shifted(position, distance):
            return [position, distance]
        case _:
            return argument


def _read_argument(facts: int | list[Any]) -> Passed:
    match facts:
        case [position, distance, map_]:
            return Mapped(position, distance, TensorMapFields.decode(bytes.fromhex(map_)))
        case [value]:
            return Word(value)
        case [position, distance]:
            return Shifted(position, distance)
        case _:
            return cast(int, facts)


def _tuple(values: list[Any] | None) -> Any:
    return None if values is None else tuple(values)
