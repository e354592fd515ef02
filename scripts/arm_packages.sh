#!/usr/bin/env bash
# scripts/arm_packages.sh FOLDER PACKAGE...: unpacks Debian's arm64 packages, and all that they depend on, into FOLDER. Nothing is
# installed, and the machine's own lists of packages are not changed. apt checks the signatures. Does nothing if FOLDER has them.
set -euo pipefail

folder=$1
shift
[ "$(cat "$folder/.packages" 2>/dev/null)" != "$*" ] || exit 0
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
state=$folder/.apt
mkdir -p "$state/lists/partial" "$state/archives/partial"
: > "$state/status"
options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "APT::Sandbox::User=$(id -un)" -o "Dir::State::lists=$state/lists"
  -o "Dir::State::status=$state/status" -o "Dir::Cache=$state" -o "Dir::Cache::archives=$state/archives" -o Debug::NoLocking=1)
apt-get "${options[@]}" update
apt-get "${options[@]}" install --yes --download-only --no-install-recommends "$@" >/dev/null
for package in "$state"/archives/*.deb; do dpkg-deb --extract "$package" "$folder"; done
rm -rf "$state"
echo "$*" > "$folder/.packages"
