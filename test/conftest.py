"""What every test shares: hypothesis without deadlines, samples, and tests of the GPU only where there is one."""

import gc
import os
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from samples import FULL

from warploom.runtime.base.errors import DeviceUnavailableError
from warploom.runtime.cuda import driver as cuda
from warploom.runtime.cuda import ptxas
from warploom.runtime.cuda.driver import gpu

# Tests run beside each other already; those of launches in several processes say how many.
os.environ.setdefault("WARPLOOM_CORES", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What a test compiles is neither read from the cache of who runs it nor kept there.
os.environ["WARPLOOM_CACHE"] = "off"
# Dynamo collects garbage after each compilation: a walk of all that was made since the last one.
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")

# IR and traces are many small objects that live long: as often as Python collects by default takes a sixth of the time.
gc.set_threshold(200_000, 20, 100)

# In CI the examples are the same each time: what it says of a change depends on the change alone.
settings.register_profile(
    "warploom",
    deadline=None,
    max_examples=100 if FULL else 25,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("warploom")
# Nor do they depend on what else was imported: hypothesis reads all sources of this folder for constants to try, 3 s.
providers._get_local_constants = lambda: providers._local_constants

GPU_TESTS = Path(__file__).parent / "gpu"


@cache
def why_no_gpu() -> str | None:
    """Why nothing can run on a GPU here; None if it can."""
    try:
        gpu()
    except DeviceUnavailableError as error:
        return str(error)
    return None


def deselect_all_but_samples(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the cases of a test that is marked `sampled(stride)`, leave one of each stride cases, and none that is `slow`.

    That is the first of the first, the second of the second: where cases are made in loops, each loop goes on.
    """
    seen: Counter[str] = Counter()
    left: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        mark = item.get_closest_marker("sampled")
        part, place = divmod(seen[test], mark.args[0] if mark else 1)
        taken = item.get_closest_marker("slow") is None and (mark is None or place == part % mark.args[0])
        (left if taken else others).append(item)
        seen[test] += 1
    items[:] = left
    config.hook.pytest_deselected(items=others)


def deselect_all_but_the_first(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of each file under test/gpu leave one test, which says why all of them are skipped."""
    first = {item.path: item for item in reversed(items)}
    others = [item for item in items if item.path.is_relative_to(GPU_TESTS) and first[item.path] is not item]
    dropped = set(others)
    items[:] = [item for item in items if item not in dropped]
    config.hook.pytest_deselected(items=others)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take samples, mark what stands under test/gpu, and skip all that is so marked where there is no device."""
    if not FULL:
        deselect_all_but_samples(config, items)
    if why_no_gpu():
        deselect_all_but_the_first(config, items)
    for item in items:
        if item.path.is_relative_to(GPU_TESTS):
            item.add_marker(pytest.mark.gpu)
        if item.get_closest_marker("gpu") and (reason := why_no_gpu()):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Keep what imports made, and the tests, from the collector, which would walk them again and again.

    Torch looks all its operators up for each of their namespaces, twice in each export. No test adds any, so once do.
    """
    gc.freeze()
    operators: Any = sys.modules.get("torch._export.utils")
    if operators is not None:
        operators._materialize_cpp_cia_ops = cache(operators._materialize_cpp_cia_ops)


@pytest.fixture
def nothing_but_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, and no ptxas unless a test asks for it."""
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    monkeypatch.setattr(ptxas, "find", lambda: None)
    cuda.load_driver.cache_clear()
    cuda.gpu.cache_clear()
