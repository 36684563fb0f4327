"""How long launches take on a GPU: the median between two events, with the L2 cache emptied before each.

Source: CUDA Driver API, section Event Management.
"""

from __future__ import annotations

import statistics
from types import TracebackType
from typing import Any, Self

from .driver import Gpu, call
from .launch import Prepared

FLUSH_BYTES = 256 << 20
"""More than any L2; writing it evicts the operands."""

WARM_UP = 3


class Timer:
    """Times prepared launches; a context manager, as it holds memory on the GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._events: tuple[Any, Any] | None = None
        self._flush: Any = None

    def __enter__(self) -> Self:
        driver = self._gpu.driver
        with self._gpu.current():
            self._flush = call("allocating memory to empty the cache with", driver.cuMemAlloc(FLUSH_BYTES))
            first, second = (call("making an event", driver.cuEventCreate(0)) for _ in range(2))
        self._events = first, second
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._gpu.current():
            self._gpu.driver.cuMemFree(self._flush)
            for event in self._events or ():
                self._gpu.driver.cuEventDestroy(event)

    def microseconds(self, launches: Prepared, repeats: int = 20) -> float:
        """The median time of one call, in microseconds.

        Raises:
            CudaError: if a launch fails.
        """
        if self._events is None:
            raise RuntimeError("a timer is used as a context manager")
        driver, stream, (start, end) = self._gpu.driver, launches.stream, self._events
        for _ in range(WARM_UP):
            launches()
        launches.wait()
        times: list[float] = []
        with self._gpu.current():
            for _ in range(repeats):
                call("emptying the cache", driver.cuMemsetD8Async(self._flush, 0, FLUSH_BYTES, stream))
                call("recording an event", driver.cuEventRecord(start, stream))
                launches()
                call("recording an event", driver.cuEventRecord(end, stream))
                launches.wait()
                times.append(1e3 * float(call("reading an event", driver.cuEventElapsedTime(start, end))))
        return statistics.median(times)
