"""The observer of which a `LaunchTrace` is made."""

from __future__ import annotations

from ...launch_trace import LaunchTrace
from ..machine.kernel import DecodedKernel
from ..machine.state import State
from ..observers.observer import Observers
from .barriers import TracedBarriers, TracedMbarriers
from .copies import TracedCopies
from .products import TracedProducts
from .stores import TracedStores
from .timeline import Timeline


class Tracer(Observers):
    """Follows the first CTAs of a launch; `trace` says what was found once it is over."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        copies = TracedCopies(self.timeline)
        followers = (TracedProducts(self.timeline), copies, TracedStores(self.timeline), TracedBarriers(self.timeline))
        # the timeline first, whose clocks the others read
        super().__init__((self.timeline, *followers, TracedMbarriers(self.timeline, copies)))

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        """What is left of the batch before is written down first."""
        self.end()
        super().begin(state, kernel)

    def trace(self) -> LaunchTrace:
        """What the launch did.

        Raises:
            ValueError: if none was observed.
        """
        line = self.timeline
        if line.kernel is None:
            raise ValueError("no launch was observed")
        geometry = line.state.geometry
        x, y, z = geometry.grid
        events = sorted(line.events, key=lambda e: (e.cta, e.start, e.warp))
        return LaunchTrace(
            line.kernel.name, geometry.grid, geometry.block, tuple(line.places), x * y * z, tuple(events)
        )
