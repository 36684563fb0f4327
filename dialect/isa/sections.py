"""What the sections of PTX ISA 9.7.14 and 9.7.15 are about, for tables that are grouped as the manual is."""

from __future__ import annotations

SECTIONS = {
    "9.7.14.4.3": "wmma.load",
    "9.7.14.4.4": "wmma.store",
    "9.7.14.4.5": "wmma.mma",
    "9.7.14.5.1": "mma m8n8k4, f16",
    "9.7.14.5.2": "mma m8n8k4, f64",
    "9.7.14.5.3": "mma m8n8k16",
    "9.7.14.5.4": "mma m8n8k32",
    "9.7.14.5.5": "mma m8n8k128",
    "9.7.14.5.6": "mma m16n8k4",
    "9.7.14.5.7": "mma m16n8k8",
    "9.7.14.5.8": "mma m16n8k16, 16 bits and wider",
    "9.7.14.5.9": "mma m16n8k16, 8 bits",
    "9.7.14.5.10": "mma m16n8k32",
    "9.7.14.5.11": "mma m16n8k64",
    "9.7.14.5.12": "mma m16n8k128",
    "9.7.14.5.13": "mma m16n8k256",
    "9.7.14.5.15": "ldmatrix",
    "9.7.14.5.16": "stmatrix",
    "9.7.14.5.17": "movmatrix",
    "9.7.14.6.2.1": "mma.sp m16n8k16, f16 and bf16",
    "9.7.14.6.2.2": "mma.sp m16n8k32, f16 and bf16",
    "9.7.14.6.2.3": "mma.sp m16n8k16, tf32",
    "9.7.14.6.2.4": "mma.sp m16n8k8, tf32",
    "9.7.14.6.2.5": "mma.sp m16n8k32, 8 bits",
    "9.7.14.6.2.6": "mma.sp m16n8k64, 8 bits",
    "9.7.14.6.2.7": "mma.sp m16n8k64, 4 bits",
    "9.7.14.6.2.8": "mma.sp m16n8k128, 4 bits",
    "9.7.15.5.2": "wgmma.mma_async",
    "9.7.15.6": "wgmma.mma_async.sp",
}
"""Titles by number, in the order of the manual."""


def order(section: str) -> tuple[int, ...]:
    """What sorts section numbers as the manual does: 9.7.14.5.9 before 9.7.14.5.10."""
    return tuple(int(part) for part in section.split("."))
