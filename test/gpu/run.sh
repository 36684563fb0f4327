#!/bin/sh
# Every test that needs a GPU, from a checkout, installed or not. See bench/with_gpu.sh for WHEELS and PYTHON.
# Arguments go to pytest: files, where there are any, in place of the whole folder, and options such as `-n 8`.
# Without pytest the comparison of the interpreter with the GPU runs alone.
set -eu

cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
if "$python" -c 'import pytest' 2>/dev/null; then
    case " $*" in
    *" test/"*) ;;
    *) set -- test/gpu "$@" ;;
    esac
    exec bench/with_gpu.sh "$python" -m pytest --confcutdir=test/gpu -p no:cacheprovider -rs "$@"
fi
exec bench/with_gpu.sh "$python" test/gpu/bitwise.py "$@"
