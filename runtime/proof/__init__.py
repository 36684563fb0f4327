"""Proofs that a kernel computes a function: both are evaluated in finite fields in place of numbers."""
