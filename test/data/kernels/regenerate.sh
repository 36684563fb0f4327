#!/bin/sh
# Makes the .ptx files of this folder again: nvcc 13.0 for the .cu files, Triton 3.6 (no GPU needed) for triton_kernels.py.
set -eu
cd "$(dirname "$0")"
for source in *.cu; do
    nvcc -ptx -arch=sm_80 -o "${source%.cu}.ptx" "$source"
done
if python3 -c 'import triton' 2>/dev/null; then
    python3 triton_kernels.py
fi
