#!/bin/sh
# Every test that needs a GPU, from a checkout, installed or not. See bench/with_gpu.sh for WHEELS and PYTHON.
# Without pytest the comparison of the interpreter with the GPU runs alone.
set -eu

cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
if "$python" -c 'import pytest' 2>/dev/null; then
    exec bench/with_gpu.sh "$python" -m pytest --confcutdir=test/gpu -p no:cacheprovider -rs test/gpu "$@"
fi
exec bench/with_gpu.sh "$python" test/gpu/bitwise.py "$@"
