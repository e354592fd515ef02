#!/usr/bin/env bash
# scripts/install_python.sh VENV [tests]: a virtual environment with torch, the build tools, what the demo imports, and a CPU OpenCL runtime;
# with "tests" what the tests, the documentation and the other targets of the Makefile import besides.
set -euo pipefail

venv=$1 torch=${TORCH:-torch==2.13.0}
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)

if [ "${2:-}" != tests ]; then
  # Intel's OpenCL runtime for CPUs, on machines without a GPU. For other processors than x86-64 pip has none, so
  # install_system.sh installs PoCL.
  runtime=()
  if [ "$(uname -m)" = x86_64 ] && ! ls /dev/dri/renderD* /dev/nvidia0 >/dev/null 2>&1; then
    runtime=(intel-opencl-rt intel-cmplr-lib-rt)
  fi
  # torch with its exact version in the same call, so that nothing pulls another build of it.
  "${pip[@]}" "$torch" "scikit-build-core>=1.0" "pybind11>=2.13" cmake ninja platformdirs click rich numpy scikit-learn matplotlib "${runtime[@]}"
  exit 0
fi
# The documentation site, which a test builds, needs mkdocs. An installed torch stays: all of these work with it.
"${pip[@]}" pytest pytest-xdist hypothesis expecttest jinja2 pygments vl-convert-python "mkdocs>=1.6,<2" "mkdocs-material>=9.5,<10"
# Only the tests use torchvision, for network definitions. --no-deps: it must not install another torch.
"${pip[@]}" --no-deps "${TORCHVISION:-torchvision==0.28.0}"
# Model definitions for tests, which are skipped without them. --no-deps: timm would install another torchvision.
"${pip[@]}" "transformers>=4.50" && "${pip[@]}" --no-deps timm safetensors huggingface_hub pyyaml accelerate psutil lightning pytorch-lightning lightning-utilities torchmetrics || echo "transformers or timm not installed: their tests skip"
