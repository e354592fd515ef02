#!/usr/bin/env bash
# scripts/install_system.sh [tests]: system packages that pip cannot bring: a compiler, headers, the OpenCL loader; with "tests" what the
# tests need besides, such as other OpenCL runtimes. Installs them as root on Debian and Ubuntu; otherwise says what to install.
set -euo pipefail

have() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'; }

if ! command -v dpkg-query >/dev/null; then
  echo "This is no Debian or Ubuntu: install a C++20 compiler, the OpenCL headers (CL/cl.h, CL/opencl.hpp), SQLite's" \
    "headers and doctest with your package manager, then run make again." >&2
  exit 0
fi
# The build needs `needed`; it and the tests run without `wanted`, slower or with skips.
missing=() needed=()
if [ "${1:-}" != tests ]; then
  needed=(ocl-icd-libopencl1 opencl-headers opencl-clhpp-headers libsqlite3-dev)
  wanted=(ccache)  # not with the tests: a build that finds it later compiles everything anew
  [ "$(uname -m)" = x86_64 ] || wanted+=(pocl-opencl-icd)  # pip brings no runtime (install_python.sh)
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  ls /usr/include/python3*/Python.h "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')"/Python.h >/dev/null 2>&1 \
    || missing+=(python3-dev)
  command -v c++ >/dev/null || missing+=(g++)
else
  wanted=(doctest-dev pocl-opencl-icd mesa-opencl-icd oclgrind)
  # The emulator in tests/no_device compiles kernels for the host with any version of Clang. PoCL installs one on some
  # systems.
  compgen -c clang | grep -E '^clang(-[0-9]+)?$' >/dev/null || wanted+=(clang)
fi
for package in "${needed[@]}" "${wanted[@]}"; do have "$package" || missing+=("$package"); done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
  echo "Missing packages. Run:  sudo apt-get install ${missing[*]}" >&2
  for package in "${needed[@]}"; do have "$package" || exit 1; done
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
