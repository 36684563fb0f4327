#!/bin/sh
# Run a command with this checkout importable as `warploom`, installing nothing:
#   bench/with_gpu.sh python3 -m warploom run examples/matmul.mlir --check
# WHEELS=FOLDER also makes the pure-Python wheels in it importable, for a machine that lacks xdsl and cannot fetch it.
# PYTHON chooses the Python that unpacks them (default python3).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT INT TERM

if [ -n "${WHEELS:-}" ]; then
    for wheel in "$WHEELS"/*.whl; do
        "${PYTHON:-python3}" -m zipfile -e "$wheel" "$site"
    done
fi

PYTHONPATH="$root/src:$site${PYTHONPATH:+:$PYTHONPATH}" "$@"
