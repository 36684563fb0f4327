"""Attentions of every form on the GPU: within the bound of float64, and beside what the interpreter gives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import attention_grid
import bitwise
from attention_gradients import AttentionGradient
from attention_gradients import problem as gradient_problem
from attention_problems import latent, problem, wrong
from attentions import Attention

from warploom.runtime import compile
from warploom.runtime.cuda.driver import GpuDevice

pytestmark = pytest.mark.gpu

CASES = [(asked, target) for asked, _ in attention_grid.cases(40, seed=5) for target in ("sm_90a", "sm_80")]

LARGE: tuple[tuple[Attention, dict[str, Any]], ...] = (
    (Attention((700, 900, 128, 128), "bf16"), {}),
    (Attention((700, 900, 128, 128), "bf16", causal=200), {"ctas": 3}),
    (Attention((900, 700, 64, 64), "f16", (2, 3), ("b1",)), {"ctas": 7}),
    (Attention((513, 511, 256, 256), "bf16", causal=0), {"ctas": 0}),
    (Attention((500, 600, 96, 96), "f16", mask=("m", "n")), {"ctas": 5, "consumers": "pingpong"}),
    (Attention((600, 600, 128, 128), "f16", causal=0), {"consumers": "pingpong", "staging": 0}),
)
"""More tiles than CTAs, by warpgroups."""


@pytest.mark.parametrize(("asked", "target"), CASES, ids=str)
def test_results_are_those_of_float64(asked: Attention, target: str, device: GpuDevice) -> None:
    if device.sm != bitwise.SM_90:
        pytest.skip(f"these are compiled for sm_90a and sm_80, this is {device}")
    assert wrong(asked, target, device="cuda") == ""


@pytest.mark.parametrize(("asked", "schedule"), LARGE, ids=str)
def test_ctas_go_from_tile_to_tile(asked: Attention, schedule: dict[str, Any], device: GpuDevice) -> None:
    if device.sm != bitwise.SM_90:
        pytest.skip(f"wgmma is for sm_90a, this is {device}")
    for seed in range(3):
        assert wrong(asked, "sm_90a", seed, device="cuda", **schedule) == ""


SAMPLE = (
    (Attention((70, 90, 64, 64)), "sm_90a"),
    (Attention((33, 65, 128, 128), "bf16", causal=3), "sm_90a"),
    (Attention((129, 257, 256, 256), "bf16", (2, 3), ("b1",)), "sm_90a"),
    (Attention((201, 300, 96, 96), "f16", mask=("m", "n")), "sm_90a"),
    (Attention((1, 311, 128, 128), "bf16"), "sm_90a"),
    (Attention((1, 777, 128, 128), "bf16", (3, 2, 4), ("b2",), lengths=True), "sm_90a"),
    (Attention((1, 640, 64, 128), "f16", (3, 2, 4), ("b2",), lengths=True, pages=32), "sm_90a"),
    (Attention((90, 300, 64, 64), "f16", (1,), window=20, causal=40), "sm_90a"),
    (Attention((130, 150, 128, 128), "f8E4M3FN", batch=(1, 2)), "sm_90a"),
    (Attention((130, 150, 192, 128), "bf16", batch=(1,)), "sm_90a"),
    (Attention((1, 133, 576, 512), "bf16", (1, 5), shared=("b1",)), "sm_90a"),
    (Attention((200, 300, 64, 64), "bf16", (1,), documents=True, causal=100, function="softcap"), "sm_90a"),
    (Attention((70, 150, 64, 64), "bf16", (1, 2), sinks="sum", softmax="inverse", function="slopes"), "sm_90a"),
    (Attention((300, 300, 128, 128), "bf16", (2,), sequences=3, causal=0), "sm_90a"),
    (Attention((300, 300, 64, 64), "f16", (2,), sequences=4), "sm_90a"),
    (Attention((13, 45, 64, 64), "bf16", (3, 5)), "sm_90a"),
    (Attention((197, 197, 64, 64), "bf16", (2, 3)), "sm_90a"),
    (Attention((70, 90, 64, 64)), "sm_90"),
    (Attention((111, 133, 128, 128), "bf16", causal=0), "sm_90"),
)
"""By `wgmma`, and by `mma.sync`. Kernels of sm_80 are interpreted with the sums of an A100, which an H200 has not."""


GRADIENTS = (
    AttentionGradient((1, 2, 70, 90, 64, 64), causal=0, window=30),
    AttentionGradient((1, 1, 200, 300, 128, 128), "f16", causal=20, delta=False),
    AttentionGradient((1, 2, 200, 200, 128, 128), causal=120, documents=True, delta=False),
    AttentionGradient((2, 1, 150, 140, 64, 64), documents=True),
    AttentionGradient((1, 1, 66, 140, 256, 256), causal=3, delta=False),
    AttentionGradient((2, 2, 197, 140, 64, 64), mask="bgmn", delta=False),
    AttentionGradient((1, 2, 200, 300, 128, 128), "f16", mask="bn", causal=120),
)


@pytest.mark.parametrize("asked", GRADIENTS, ids=str)
def test_words_of_gradients_are_the_interpreters(asked: AttentionGradient, device: GpuDevice) -> None:
    """With the launches one after the other there, and at once here; in every run."""
    if device.sm != bitwise.SM_90:
        pytest.skip(f"wgmma is for sm_90a, this is {device}")
    kernel = asked.compile("sm_90a")
    here = gradient_problem(asked)
    kernel(*here.arguments, device="interp")
    assert here.wrong() == ""
    for _ in range(3):
        there = gradient_problem(asked)
        kernel(*there.arguments, device="cuda")
        for ours, other in zip(here.arguments[-3:], there.arguments[-3:], strict=True):
            assert np.array_equal(bitwise.words(ours), bitwise.words(other))


OF_MANY = (
    AttentionGradient((1, 4, 1500, 1500, 128, 128), causal=300, documents=True, delta=False),
    AttentionGradient((2, 8, 1100, 900, 64, 64), documents=True, delta=False),
    AttentionGradient((1, 2, 1024, 1024, 256, 256), causal=0, delta=False),
)
"""Several turns of all SMs."""


@pytest.mark.parametrize("asked", OF_MANY, ids=str)
def test_gradients_are_those_of_float64(asked: AttentionGradient, device: GpuDevice) -> None:
    if device.sm != bitwise.SM_90:
        pytest.skip(f"wgmma is for sm_90a, this is {device}")
    instance = gradient_problem(asked)
    asked.compile("sm_90a")(*instance.arguments, device="cuda")
    assert instance.wrong() == ""


def test_gradients_in_a_graph_are_those_of_launches(device: GpuDevice) -> None:
    """A graph keeps which launches may begin early; what follows them in it finds all of them finished."""
    torch: Any = pytest.importorskip("torch")
    if device.sm != bitwise.SM_90:
        pytest.skip(f"wgmma is for sm_90a, this is {device}")
    asked = AttentionGradient((1, 3, 1500, 1500, 64, 64), causal=0, delta=False)
    kernel, instance = asked.compile("sm_90a"), gradient_problem(asked)
    words = [torch.from_numpy(bitwise.words(array).view(np.int16 if array.itemsize == 2 else np.int32)).cuda()
             for array in instance.arguments]  # fmt: skip
    arguments = [x.view(torch.bfloat16 if x.dtype == torch.int16 else torch.float32) for x in words]
    kernel(*arguments)
    expected, copies = [x.clone() for x in words[-3:]], [torch.zeros_like(x) for x in words[-3:]]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(*arguments)
        for copy, result in zip(copies, words[-3:], strict=True):
            copy.copy_(result)
    for _ in range(5):
        for result in words[-3:]:
            result.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert all(map(torch.equal, copies, expected))


@pytest.mark.parametrize(("asked", "target"), SAMPLE, ids=str)
def test_words_are_the_interpreters(asked: Attention, target: str, device: GpuDevice) -> None:
    if device.sm != bitwise.SM_90:
        pytest.skip(f"the interpreter is held against sm_90 only, this is {device}")
    kernel = asked.compile(target)
    here, there = problem(asked).arguments, problem(asked).arguments
    kernel(*here, device="interp")
    kernel(*there, device="cuda")
    assert np.array_equal(bitwise.words(here[-1]), bitwise.words(there[-1]))
    assert not np.array_equal(here[-1], problem(asked).arguments[-1])


@pytest.mark.parametrize("batch", [(1, 5), (1, 70)], ids=str)
def test_words_of_a_latent_matrix_are_the_interpreters(batch: tuple[int, ...], device: GpuDevice) -> None:
    """V is 512 columns of the 576 of K, for few heads and for several tiles of them."""
    if device.sm != bitwise.SM_90:
        pytest.skip(f"the interpreter is held against sm_90 only, this is {device}")
    text, here = latent(Attention((1, 133, 576, 512), "bf16", batch, shared=("b1",)), 0)
    kernel, (q, k, _, o) = compile(text, "sm_90a"), here.arguments
    there = np.full_like(o, 7.0)
    kernel(q, k, o, device="interp")
    assert here.wrong() == ""
    kernel(q, k, there, device="cuda")
    assert np.array_equal(bitwise.words(o), bitwise.words(there))
