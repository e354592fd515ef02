#!/usr/bin/env bash
# scripts/arm.sh [TARGET...]: builds the C++ core for 64-bit Arm with Debian's cross compiler and runs its tests in QEMU with PoCL for Arm;
# given targets, these tests only. QEMU_CPU names the processor (cortex-a76, that of the Raspberry Pi 5); QEMU_PAGESIZE the size of a page.
# Exit status 3: a program or a package is missing, or the kernel cannot start programs for Arm.
set -euo pipefail

cd "$(dirname "$0")/.."
build=build/arm
for program in aarch64-linux-gnu-g++ qemu-aarch64 apt-get dpkg-deb unshare cmake ninja ctest; do
  command -v $program >/dev/null || { echo "missing: $program (Debian: g++-aarch64-linux-gnu, qemu-user, util-linux, cmake, ninja-build)" >&2; exit 3; }
done
root=$PWD/build/arm_root
scripts/arm_packages.sh "$root" libstdc++6 libsqlite3-0 ocl-icd-libopencl1 pocl-opencl-icd \
  || { echo "Debian's packages for arm64 could not be fetched" >&2; exit 3; }

# In namespaces of its own, a command sees a kernel that starts programs for Arm with QEMU. Outside of them nothing changes.
# Needs Linux 6.7.
# QEMU_RESERVED_VA: 39 bits of addresses, as in many kernels for Arm. With more of them QEMU needs 7 GB for what a test reserves.
export QEMU_LD_PREFIX=$root QEMU_CPU=${QEMU_CPU:-cortex-a76} QEMU_RESERVED_VA=${QEMU_RESERVED_VA:-0x8000000000}
elf='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
on_arm() {
  unshare --map-root-user --mount sh -c 'mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && cd /proc/sys/fs/binfmt_misc \
    && printf %s "$1" > register && cd "$2" && shift 2 && exec "$@"' sh ":arm:M::$elf:$mask:$(command -v qemu-aarch64):F" "$PWD" "$@"
}

on_arm true || { echo "no namespace with a binfmt_misc of its own could be made; Linux 6.7 can, unless user namespaces are off" >&2; exit 3; }

# Of the machine's headers, only these work for every processor.
mkdir -p $build/headers
for part in CL doctest sqlite3.h; do ln -sfn "${OCL_HEADERS:-/usr/include}/$part" $build/headers/$part; done
headers=$PWD/$build/headers
cmake -S . -B $build -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DOCL_ARM_ROOT="$root" -DOCL_PYTHON=OFF -DOCL_TESTS=ON \
  -DOCL_WERROR="${WERROR:-OFF}" -DOPENCL_INCLUDE="$headers" -DOPENCL_BINDINGS_INCLUDE="$headers" -DSQLITE_INCLUDE="$headers" \
  -DDOCTEST_INCLUDE="$headers" >/dev/null
cmake --build $build --target "${@:-cpp_tests}"

# PoCL, named by its whole path, finds its files in the folder of packages; QEMU redirects only some calls there. It links kernels with
# the cross linker. Of OpenCL runtimes, the tests see only this one.
mkdir -p $build/vendors $build/bin
ls "$root"/usr/lib/aarch64-linux-gnu/libpocl.so.* | tail -n 1 > $build/vendors/pocl.icd
ln -sfn "$(command -v aarch64-linux-gnu-ld)" $build/bin/ld
export OCL_ICD_VENDORS=$PWD/$build/vendors OCL_TEST_RUNTIMES="" POCL_CACHE_DIR=$PWD/$build/pocl PATH=$PWD/$build/bin:$PATH
LIBRARY_PATH=$(dirname "$(aarch64-linux-gnu-g++ -print-libgcc-file-name)"):/usr/aarch64-linux-gnu/lib
export LIBRARY_PATH

options=(--test-dir $build --output-on-failure --timeout 900)
pattern=$(IFS='|'; echo "$*")
access=test_cache_access_linux  # In the namespace, root cannot give files to other users. This test starts no programs.
on_arm ctest "${options[@]}" ${pattern:+-R "^($pattern)\$"} -E "^$access\$"
if [ -z "$pattern" ] || [[ " $* " == *" $access "* ]]; then ctest "${options[@]}" -R "^$access\$"; fi
