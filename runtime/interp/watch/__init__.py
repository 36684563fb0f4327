"""What watches a running kernel: checks, reports and traces listen to its events."""
