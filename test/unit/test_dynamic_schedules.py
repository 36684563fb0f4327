"""Schedules of products whose sizes only the caller knows: what is chosen, and that it is right at every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from warploom.dialect.schedule import Schedule
from warploom.runtime import Kernel, compile


def text(a: str, b: str, c: str, kinds: str = "bf16 bf16 f32", divisor: int = 8) -> str:
    memories = [f"memref<{shape}x{kind}>" for shape, kind in zip((a, b, c), kinds.split(), strict=True)]
    arguments = ", ".join(
        f"%{name}: {memory} {{warp.divisible = {divisor} : i64}}" for name, memory in zip("ABC", memories, strict=True)
    )
    return f"""func.func @f({arguments}) {{
      linalg.matmul ins(%A, %B : {memories[0]}, {memories[1]}) outs(%C : {memories[2]}) return }}"""


def chosen(a: str, b: str, c: str, kinds: str = "bf16 bf16 f32", divisor: int = 8) -> Schedule:
    (schedule,) = compile(text(a, b, c, kinds, divisor), target="sm_90").schedule
    assert schedule is not None
    return schedule


def test_rows_of_unknown_number_get_the_loop_of_large_products() -> None:
    """Nothing in the loop depends on M: it is that of a static product, waits, turns and all."""
    schedule, static = chosen("?x4096", "4096x4096", "?x4096"), chosen("4096x4096", "4096x4096", "4096x4096")
    assert schedule == static
    # 512 tiles in four turns
    assert (schedule.sync, schedule.unroll, schedule.ctas) == ("mbarrier", 8, 128)


def test_columns_of_unknown_number_keep_one_tile_to_a_cta() -> None:
    schedule = chosen("4096x4096", "4096x?", "4096x?")
    assert (schedule.sync, schedule.unroll, schedule.ctas) == ("mbarrier", 8, 0)


def test_a_sum_of_unknown_length_is_not_unrolled() -> None:
    schedule = chosen("?x?", "?x4096", "?x4096")
    assert (schedule.sync, schedule.unroll, schedule.ctas) == ("mbarrier", 0, 0)


def test_rows_of_unknown_length_are_copied_by_fewer_registers() -> None:
    """Tiles are less deep, and those of single words smaller, than where the pitch is a number."""
    kinds = "f16 f16 f32"
    assert (
        chosen("?x4096", "4096x?", "?x?", kinds=kinds, divisor=1).cta[2] < chosen("64x4096", "4096x64", "64x64").cta[2]
    )


@pytest.fixture(scope="module")
def persistent() -> Kernel:
    small: dict[str, Any] = {"cta": (64, 64, 32), "warp": (32, 32), "stages": 4, "sync": "mbarrier", "prefetch": 2}
    return compile(text("?x256", "256x136", "?x136", "f16 f16 f32"), **small, ctas=3, unroll=4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("m", [1, 63, 200])
def test_ctas_that_go_on_for_any_number_of_rows(persistent: Kernel, m: int) -> None:
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, 256)).astype(np.float16), rng.standard_normal((256, 136)).astype(np.float16)
    c = rng.standard_normal((m, 136)).astype(np.float32)
    x, y = a.astype(np.float64), b.astype(np.float64)
    exact, bound = c + x @ y, 258 * 2.0**-23 * (np.abs(c) + np.abs(x) @ np.abs(y))
    persistent(a, b, c, device="interp", checks="all" if m == 1 else ())
    assert (np.abs(c - exact) <= bound).all()
