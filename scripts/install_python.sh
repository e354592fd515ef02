#!/usr/bin/env bash
# scripts/install_python.sh VENV: a virtual environment with torch, the build tools, what demo and tests import, and a CPU OpenCL runtime.
set -euo pipefail

venv=$1
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
# torch first and with its exact version, so that nothing below pulls another build of it.
"${pip[@]}" "${TORCH:-torch==2.13.0}"
"${pip[@]}" "scikit-build-core>=1.0" "pybind11>=2.13" cmake ninja platformdirs
"${pip[@]}" pytest pytest-xdist hypothesis expecttest numpy scikit-learn matplotlib click rich jinja2 pygments vl-convert-python
# The documentation site, which a test builds.
"${pip[@]}" "mkdocs>=1.6,<2" "mkdocs-material>=9.5,<10"
# Only the tests use torchvision, for network definitions. --no-deps: it must not install another torch.
"${pip[@]}" --no-deps "${TORCHVISION:-torchvision==0.28.0}"
# Model definitions for tests, which are skipped without them. --no-deps: timm would install another torchvision.
"${pip[@]}" "transformers>=4.50" && "${pip[@]}" --no-deps timm safetensors huggingface_hub pyyaml accelerate psutil || echo "transformers or timm not installed: their tests skip"
# Intel's OpenCL runtime for CPUs, on machines without a GPU.
if ! ls /dev/dri/renderD* /dev/nvidia0 >/dev/null 2>&1; then
  "${pip[@]}" intel-opencl-rt intel-cmplr-lib-rt
fi
