#!/usr/bin/env bash
# scripts/sanitize.sh KIND: builds everything with -fsanitize=KIND (address,undefined or thread), runs the C++ tests and
# a part of the device tests. Python, torch and the OpenCL runtimes are not instrumented; scripts/sanitizers/ suppresses
# false reports about them.
set -euo pipefail

cd "$(dirname "$0")/.."
kind=$1
name=${kind%%,*}
build=build/sanitize-$name
python=${PYTHON:-python3}
bin=$(dirname "$python")
export PATH=$bin:$PATH VIRTUAL_ENV=$(dirname "$bin")
case $name in
  address) library=libasan.so ;;
  thread) library=libtsan.so ;;
  *) echo "usage: scripts/sanitize.sh address,undefined | thread" >&2; exit 2 ;;
esac
# Leaks of the OpenCL runtimes are not reported, and their signal handlers stay installed.
export ASAN_OPTIONS=detect_leaks=0:use_sigaltstack=0:allow_user_segv_handler=1:halt_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=suppressions=$PWD/scripts/sanitizers/thread.txt:halt_on_error=0:exitcode=66:ignore_noninstrumented_modules=1:second_deadlock_stack=1
# ThreadSanitizer does not work with the address space randomisation of some kernels, so it is switched off.
plain=(setarch -R)

cmake -S . -B "$build" -G Ninja -DOCL_SANITIZE="$kind" -DOCL_TESTS=ON -DOCL_PYTHON=ON -DPython_EXECUTABLE="$python" >/dev/null
cmake --build "$build" --target all cpp_tests
"${plain[@]}" ctest --test-dir "$build" --output-on-failure --timeout 1500

# A virtual environment that finds first this tree with the instrumented extension, then the packages of $VIRTUAL_ENV.
"$python" -m venv --without-pip "$build/venv"
site=$("$build/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$build/tree"
ln -sfn "$PWD/tests" "$build/tree/tests"
rm -rf "$build/tree/torch_ocl_compile" && cp -r torch_ocl_compile "$build/tree/"
cp "$build"/_C.*.so "$build/tree/torch_ocl_compile/"
echo "$PWD/$build/tree" > "$site/first.pth"
"$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' > "$site/second.pth"
for part in lib/*.so* lib/*.rtl lib/*.o lib/cl.cfg etc; do
  for file in "$VIRTUAL_ENV"/$part; do
    [ -e "$file" ] && ln -sfn "$file" "$build/venv/${file#"$VIRTUAL_ENV"/}"
  done
done

preload=$(${CXX:-c++} -print-file-name=$library):$(${CXX:-c++} -print-file-name=libstdc++.so.6)
cd "$build/tree"
sanitized() { "${plain[@]}" env LD_PRELOAD="$preload" OMP_NUM_THREADS=1 ../venv/bin/python "$@"; }
sanitized -m pytest -p no:cacheprovider -x tests/device/runtime/test_streams.py tests/device/runtime/test_storage.py tests/device/kernels/test_kept_weights.py \
  tests/device/compiled/test_mutation.py --ocl-devices "${DEVICES:-intel}"
sanitized -m tests.stress --minutes "${STRESS_MINUTES:-2}" --devices ocl:0
