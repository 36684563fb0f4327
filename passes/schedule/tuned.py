"""What was measured on devices: a JSON file that `warploom tune` writes and `warp-schedule` reads.

By device, then by what a product is: sizes, element types, how the operands lie. For each the fastest schedule, and
every one measured with its time, so that a search can go on where it stopped. A device may also have the constants of
the model of products, fitted to what was measured there (`fitted`).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product as combinations
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from ...dialect.isa.row import Target
from ...dialect.schedule import Schedule, ScheduleError
from ..linalg.product import Product
from ..source import read_text
from .model import DRAWN, Fit
from .warpgroup import time_of

FORMAT = 1

AT = ", at "
"""What stands between a product of unknown sizes and the sizes of the arguments that it was measured with."""


class Entry(TypedDict):
    """One product on one device: the fastest schedule, and microseconds by schedule; None for one that failed."""

    best: str
    measured: dict[str, float | None]


class Device(TypedDict):
    """Measurements on one device. `target` is that of its kernels; `sms` and `timing` are what the model of products
    takes of a device, if `warploom tune --device` measured it."""

    target: str
    products: dict[str, Entry]
    sms: NotRequired[int]
    timing: NotRequired[list[float]]


@dataclass
class Tuned:
    """The contents of a file."""

    path: Path
    devices: dict[str, Device] = field(default_factory=dict[str, Device])

    @staticmethod
    def read(path: str | Path) -> Tuned:
        """Reads a file.

        Raises:
            ScheduleError: for a missing file, or one in another format.
        """
        place = Path(path)
        try:
            content = json.loads(read_text(place))
            if content["format"] != FORMAT:
                raise ScheduleError(f"{path}: tuned schedules in format {content['format']}, expected {FORMAT}")
            devices = cast("dict[str, Device]", content["devices"])
            for device in devices.values():
                Fit(*map(float, device.get("timing", DRAWN)))
                for entry in device["products"].values():
                    Schedule.parse(entry["best"])
        except ScheduleError:
            raise
        except OSError as error:
            raise ScheduleError(f"{path}: {error.strerror or error}; `warploom tune` writes such files") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScheduleError(f"{path}: expected a file of schedules that `warploom tune` wrote") from error
        return Tuned(place, devices)

    def write(self) -> None:
        """Replaces the file at once. A write that is interrupted leaves the old file."""
        text = json.dumps({"format": FORMAT, "devices": self.devices}, indent=1) + "\n"
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, self.path)

    def device(self, device: str, target: str) -> Device:
        """The measurements on a device, created if missing. One with several measured targets has them for each."""
        measured_for = self.devices.get(device)
        name = device if measured_for is None or measured_for["target"] == target else f"{device} as {target}"
        return self.devices.setdefault(name, Device(target=target, products={}))

    def entry(self, device: str, target: str, key: str) -> Entry:
        """The entry of a product on a device, created if missing."""
        return self.device(device, target)["products"].setdefault(key, Entry(best="", measured={}))

    def measured(self, target: Target) -> Target:
        """The target as its first measured device is: with its number of multiprocessors, and its constants."""
        for device in self.devices.values():
            if device["target"] == target.name and "sms" in device and "timing" in device:
                return replace(target, sms=device["sms"], timing=tuple(device["timing"]))
        return target

    def best(self, target: str, key: str) -> Schedule | None:
        """The fastest schedule of a product on the first device of a target that has an entry for it. For dynamic sizes
        it is that of the first arguments that were measured."""
        for device in self.devices.values():
            at = next((name for name in device["products"] if name.startswith(key + AT)), key)
            entry = device["products"].get(key, device["products"].get(at))
            if device["target"] == target and entry is not None and entry["best"]:
                return Schedule.parse(entry["best"])
        return None


# The constants of the model of warpgroups, fitted to what was measured.


Timed = tuple[Product, Mapping[Schedule, float]]
"""A product, and the microseconds that it took by schedules of warpgroups."""

STEPS = (2.0, 1.25, 1.05, 1.01)
"""Factors by which constants change, one after another, as long as one change makes the fit better."""

NO_BETTER = 1e-4
"""The part by which a fit must be better to count."""

FASTEST = 2.0
"""Times beyond so many times the fastest of a product tell little of what to choose."""


def fitted(timed: Sequence[Timed], target: Target) -> tuple[Fit, float]:
    """The constants by which the model is nearest to the times, and how far from them it is: the mean distance of
    logarithms.

    What events and an empty cache add to each time is the same for all, and no part of the model. The search changes
    one constant at a time, from those of an H100 on.
    """
    near = [
        (product, schedule, taken)
        for product, times in timed
        for schedule, taken in times.items()
        if taken <= FASTEST * min(times.values())
    ]
    fit, error = DRAWN, _error(near, DRAWN, target)
    for step in STEPS:
        improves = True
        while improves:
            improves = False
            for i, factor in combinations(range(len(fit)), (step, 1 / step)):
                tried = Fit._make((*fit[:i], fit[i] * factor, *fit[i + 1 :]))
                if (off := _error(near, tried, target)) < error * (1 - NO_BETTER):
                    fit, error, improves = tried, off, True
    return fit, error


def _error(near: Sequence[tuple[Product, Schedule, float]], fit: Fit, target: Target) -> float:
    """The mean distance of the logarithms of times from the model's, beside what all times have in addition."""
    from statistics import fmean, median  # a compilation reads what was measured, and fits nothing

    there = replace(target, timing=tuple(fit))
    modelled = [time_of(product, schedule, there) / 1000 for product, schedule, _ in near]
    taken = [each[2] for each in near]
    offset = median(time - model for time, model in zip(taken, modelled, strict=True))
    pairs = zip(taken, modelled, strict=True)
    return fmean(abs(math.log(time / max(model + offset, model / 2))) for time, model in pairs)
