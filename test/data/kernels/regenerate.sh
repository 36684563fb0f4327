#!/bin/sh
# Makes the .ptx files of this folder again: nvcc 13.0 for the .cu files (for sm_80, or as the first line says), Triton 3.6 (no GPU needed) for triton_kernels.py.
set -eu
cd "$(dirname "$0")"
for source in *.cu; do
    flags=$(sed -n '1s,^// nvcc ,,p' "$source")
    nvcc -ptx "${flags:--arch=sm_80}" -o "${source%.cu}.ptx" "$source"
done
if python3 -c 'import triton' 2>/dev/null; then
    python3 triton_kernels.py
fi
