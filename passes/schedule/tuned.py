"""Schedules that were measured to be the fastest: a JSON file that `warploom tune` writes and `warp-schedule` reads.

By device, then by what the product is: sizes, element types, how the operands lie. For each the fastest schedule, and
every one measured with its time, so that a search can go on where it stopped.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, cast

from ...dialect.schedule import Schedule, ScheduleError
from ..linalg.product import Product
from ..option_files import read_text
from .resources import multiplied

FORMAT = 1

AT = ", at "
"""What stands between a product of unknown sizes and the sizes of the arguments that it was measured with."""


class Entry(TypedDict):
    """One product on one device: the fastest schedule, and microseconds by schedule; None for one that failed."""

    best: str
    measured: dict[str, float | None]


class Device(TypedDict):
    """What was measured on one device; `target` is what kernels for it are compiled for."""

    target: str
    products: dict[str, Entry]


@dataclass
class Tuned:
    """The contents of a file."""

    path: Path
    devices: dict[str, Device] = field(default_factory=dict[str, Device])

    @staticmethod
    def read(path: str | Path) -> Tuned:
        """Reads a file.

        Raises:
            ScheduleError: for a file that is not there, or no such JSON.
        """
        place = Path(path)
        try:
            held = json.loads(read_text(place))
            if held["format"] != FORMAT:
                raise ScheduleError(f"{path}: tuned schedules in format {held['format']}, expected {FORMAT}")
            devices = cast("dict[str, Device]", held["devices"])
            for entry in (e for d in devices.values() for e in d["products"].values()):
                Schedule.parse(entry["best"])
        except ScheduleError:
            raise
        except OSError as error:
            raise ScheduleError(f"{path}: {error.strerror or error}; `warploom tune` writes such files") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScheduleError(f"{path}: expected a file of schedules that `warploom tune` wrote") from error
        return Tuned(place, devices)

    def write(self) -> None:
        """Writes the file as a whole, so that one that is interrupted leaves the last."""
        whole = json.dumps({"format": FORMAT, "devices": self.devices}, indent=1) + "\n"
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text(whole, encoding="utf-8")
        os.replace(beside, self.path)

    def entry(self, device: str, target: str, key: str) -> Entry:
        """The entry of a product on a device, made when there is none. A device for which several targets were measured
        has an entry for each."""
        known = self.devices.get(device)
        name = device if known is None or known["target"] == target else f"{device} as {target}"
        held = self.devices.setdefault(name, Device(target=target, products={}))
        return held["products"].setdefault(key, Entry(best="", measured={}))

    def best(self, target: str, key: str) -> Schedule | None:
        """The fastest schedule of a product on the first device of a target that has one; of one of unknown sizes, that
        with the first arguments that it was measured with."""
        for device in self.devices.values():
            at = next((name for name in device["products"] if name.startswith(key + AT)), key)
            entry = device["products"].get(key, device["products"].get(at))
            if device["target"] == target and entry is not None and entry["best"]:
                return Schedule.parse(entry["best"])
        return None


def key_of(product: Product) -> str:
    """What a product is, as far as its speed depends on it: `4096x4096x4096 bf16 x bf16 -> f32, B transposed`."""
    sizes = zip("mnk", (product.m, product.n, product.k), strict=True)
    size = "x".join(str(number) if product.is_known(axis) else "?" for axis, number in sizes)
    words = [f"{size} {multiplied(product)}"]
    words[0] += f" -> {product.d.element.name}"
    words += [f"{o.name} transposed" for o in (product.a, product.b) if o.transposed]
    words += [f"summed {'x'.join(map(str, product.summed))} times"] if product.summed else []
    words += ["A sparse"] if product.sparsity > 1 else []
    words += product.op.words
    words += [f"scales of {product.scales[0].element.name}"] if product.scales else []
    words += [f"scales of groups of {product.group}"] if product.group else []
    words += ["added to C"] if product.c is not None else []
    words += ["with an epilogue"] if product.op.epilogue is not None else []
    return ", ".join(words)
