"""The machine that executes instructions: threads, memory, mbarriers, launches."""
