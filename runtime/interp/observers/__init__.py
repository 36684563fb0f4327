"""What looks on while a kernel runs: the interface, the report, what accesses to memory cost."""
