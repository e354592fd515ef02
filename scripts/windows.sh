#!/usr/bin/env bash
# scripts/windows.sh [TARGET...]: builds the C++ core for Windows with mingw-w64 and runs its tests in Wine; given targets, these tests
# only. OCL_SQLITE_SOURCE names a folder with sqlite3.c and sqlite3.h; without it, build/sqlite gets them from Debian's source package.
# Exit status 3: a program or SQLite's source is missing.
set -euo pipefail

cd "$(dirname "$0")/.."
build=build/windows
for program in x86_64-w64-mingw32-g++ wine cmake ninja ctest; do
  command -v $program >/dev/null || { echo "missing: $program (Debian: g++-mingw-w64-x86-64-posix, wine, wine64, cmake, ninja-build)" >&2; exit 3; }
done
sqlite=${OCL_SQLITE_SOURCE:-$PWD/build/sqlite}
if ! [ -e "$sqlite/sqlite3.c" ]; then
  scripts/sqlite_source.sh "$sqlite" || { echo "SQLite's source could not be fetched: name its folder in OCL_SQLITE_SOURCE" >&2; exit 3; }
fi
# Of the machine's headers, only these two folders work for every operating system.
mkdir -p $build/headers
for folder in CL doctest; do ln -sfn "${OCL_HEADERS:-/usr/include}/$folder" $build/headers/$folder; done

cmake -S . -B $build -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/mingw-w64.cmake" -DOCL_PYTHON=OFF -DOCL_TESTS=ON \
  -DOCL_WERROR="${WERROR:-OFF}" -DOCL_SQLITE_SOURCE="$sqlite" -DOPENCL_INCLUDE="$PWD/$build/headers" \
  -DOPENCL_BINDINGS_INCLUDE="$PWD/$build/headers" -DDOCTEST_INCLUDE="$PWD/$build/headers" >/dev/null
cmake --build $build --target "${@:-cpp_tests}"

# A separate Wine prefix (Windows installation) for the tests, without .NET, a browser, or a debugger for crashes. Its
# OpenCL.dll passes calls on to this machine's loader, so the tests see the machine's devices.
export WINEPREFIX=$PWD/build/wine WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml,winedbg.exe="
[ -e "$WINEPREFIX/system.reg" ] || wine wineboot --init >/dev/null 2>&1
pattern=$(IFS='|'; echo "$*")
run() { ctest --test-dir $build --output-on-failure --timeout 600 "$@"; }
run ${pattern:+-R "^($pattern)\$"}

# test_build_pool runs again on Intel's runtime. PoCL has its own cache of binaries, so build workers are not used with
# it.
intel=${VIRTUAL_ENV:-}/lib/libintelocl.so
if [ -e "$intel" ] && [ -z "$pattern" ]; then
  mkdir -p $build/vendors
  echo "$intel" > $build/vendors/intel.icd
  OCL_ICD_VENDORS=$PWD/$build/vendors LD_LIBRARY_PATH=$(dirname "$intel") run -R '^test_build_pool$'
fi
