"""The machine that executes them: threads in flight, memory, mbarriers, launches."""
