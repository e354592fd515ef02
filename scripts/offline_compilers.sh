#!/usr/bin/env bash
# scripts/offline_compilers.sh [FOLDER]: unpacks compilers for GPUs that this machine lacks into FOLDER, from the packages of Debian
# bookworm: Intel's (ocloc, Gen9 to Xe-HPC) and AMD's (clang 19 and the device libraries, gfx9 to gfx12). Nothing is installed, and no
# OpenCL device appears. Does nothing if FOLDER already holds them. tests/offline uses them. Exit status 3: they cannot be fetched here.
set -euo pipefail

folder=${1:-${OCL_OFFLINE_COMPILERS:-$HOME/.cache/torch_ocl_compile/offline_compilers}}
packages=(intel-opencl-icd libigc1 libigdfcl1 libigdgmm12 libopencl-clang14 libllvmspirvlib14 libllvm14 libclang-cpp14
  rocm-device-libs clang-19 libclang-cpp19 libllvm19 libclang-common-19-dev)
# The list is in the file's name: with another list, the folder is filled anew.
complete=.complete_$(echo "${packages[@]}" | cksum | cut -d ' ' -f 1)
[ -e "$folder/$complete" ] && exit 0

fail() { echo "offline compilers: $*" >&2; exit 3; }
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
[ -e "$folder/$complete" ] && exit 0  # Another process has filled it in the meantime.
# Only what an earlier run made is replaced.
if [ -e "$folder" ] && ! compgen -G "$folder/.complete_*" >/dev/null; then
  rmdir "$folder" 2>/dev/null || fail "$folder exists and holds something else"
fi
for program in apt-get apt-cache dpkg-deb; do
  command -v $program >/dev/null || fail "$program is missing; they come from Debian's packages (bookworm)"
done
unknown() { for package in "${packages[@]}"; do apt-cache show "$package" >/dev/null 2>&1 || echo "$package"; done; }
if [ -n "$(unknown)" ]; then
  [ "$(id -u)" -eq 0 ] || fail "apt does not know these packages:" $(unknown) "- run: sudo apt-get update"
  apt-get update -qq || fail "apt-get update failed"
  [ -z "$(unknown)" ] || fail "this distribution lacks these packages of Debian bookworm:" $(unknown)
fi

# Filled beside its place and then renamed, so that FOLDER is never half full.
new=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$new"' EXIT
mkdir "$new/debs"
(cd "$new/debs" && apt-get download -qq "${packages[@]}" 2>"$new/log") || fail "apt-get download failed: $(cat "$new/log")"
for deb in "$new"/debs/*.deb; do
  dpkg-deb -x "$deb" "$new"
  dpkg-deb -W --showformat='${Package} ${Version}\n' "$deb"
done > "$new/versions"
rm -rf "$new/debs" "$new/log" "$new/etc" "$new/usr/share"

libraries=$new/usr/lib/x86_64-linux-gnu
missing=$(LD_LIBRARY_PATH=$libraries:$libraries/intel-opencl:$new/usr/lib/llvm-19/lib \
  ldd "$new/usr/bin/ocloc" "$new/usr/lib/llvm-19/bin/clang" "$libraries"/lib*.so.[0-9]* | awk '/not found/ {print $1}' | sort -u)
[ -z "$missing" ] || fail "these libraries are missing, install their packages:" $missing
touch "$new/$complete"
chmod 755 "$new"
rm -rf "$folder"
mv -T "$new" "$folder"
