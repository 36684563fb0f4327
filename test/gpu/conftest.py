"""The device that the tests here need; without one they are skipped, and say why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from warploom.runtime import DeviceUnavailableError
from warploom.runtime.cuda.driver import GpuDevice, gpu

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def device() -> GpuDevice:
    """The GPU."""
    try:
        return gpu().device
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
