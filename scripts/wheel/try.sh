#!/usr/bin/env bash
# scripts/wheel/try.sh WHEEL [FILE]: installs a wheel on a Debian system that has Python and nothing else, runs the README's
# first example there, and writes what was typed and printed to FILE (Markdown). Needs root, debootstrap and a network. TORCH: a
# requirement, or a file with torch's wheel.
set -euo pipefail

wheel=$(realpath "$1")
report=${2:-/dev/stdout}
torch=${TORCH:-torch==2.13.0}
root=$(mktemp -d)
cleanup() { umount "$root/proc" "$root/sys" "$root/dev" 2>/dev/null || true; rm -rf --one-file-system "$root"; }
trap cleanup EXIT

debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "${SUITE:-bookworm}" "$root" ${MIRROR:+"$MIRROR"} >/dev/null
mkdir "$root/trial"
mount -t proc proc "$root/proc"
mount --bind /sys "$root/sys"
mount --bind /dev "$root/dev"
# The host's name resolution and certificates: it may reach the network through a proxy.
cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
[ -f "$torch" ] && cp "$torch" "$root/tmp/" && torch=/tmp/$(basename "$torch")
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/trial LANG=C.UTF-8 PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_WARN_SCRIPT_LOCATION=1 \
  ${PIP_INDEX_URL:+PIP_INDEX_URL=$PIP_INDEX_URL} ${https_proxy:+https_proxy=$https_proxy} chroot "$root" bash -c "cd /trial; [ -d .venv ] && . .venv/bin/activate; $1"; }

if inside "command -v c++ || command -v cc || ls -d /usr/include/CL || find / -xdev -name 'libOpenCL*' | grep ." >/dev/null 2>&1; then
  echo "the system has more than Python: the trial would show nothing" >&2
  exit 1
fi
inside "python3 -m venv .venv && . .venv/bin/activate && pip install --quiet $torch numpy"
cat > "$root/trial/first.py" < <(sed -n '/^```python$/,/^```$/p' "$(dirname "$0")/../../README.md" | sed '/^```$/q' | sed '1d;$d'; echo 'print("loss", loss.item(), "on", torch.ocl.get_device_name(0))')

cp "$wheel" "$root/trial/"
start=$(date +%s.%N)
{
  echo "<!-- scripts/wheel/try.sh writes this page. -->"
  echo "<!-- no-run all: needs a new Debian system; this is what it printed -->"
  echo "# From an empty environment to the first training step"
  echo
  echo "What a Debian system printed that has Python, torch and numpy: no compiler, no headers, no OpenCL."
  echo
  echo '```console'
  for line in "pip install --quiet $(basename "$wheel")" "python -c 'import torch; torch.ones(2, device=\"ocl\")' 2>&1 | tail -n 2" \
    "pip install --quiet $(basename "$wheel")[cpu]" "torch-ocl devices" "cat first.py" "python first.py"; do
    echo "\$ $line"
    inside "$line" 2>&1 | sed 's/[[:space:]]*$//'
  done
  echo '```'
  echo
  echo "All of it took $(printf '%.0f' "$(echo "$(date +%s.%N) - $start" | bc)") seconds on $(nproc) cores."
} > "$report"
