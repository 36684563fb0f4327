"""Operators and the backend on `DTensor`, in two processes that talk through gloo."""

from __future__ import annotations

import socket

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.tensor")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch was built without gloo")
def test_a_perceptron_cut_among_two_processes() -> None:
    from tensor_parallel import work

    torch.multiprocessing.spawn(work, (free_port(),), nprocs=2)
