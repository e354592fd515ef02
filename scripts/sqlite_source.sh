#!/usr/bin/env bash
# scripts/sqlite_source.sh FOLDER: puts SQLite's sqlite3.c and sqlite3.h into FOLDER, made from Debian's source package, whose signature
# apt checks. For builds for systems that have no SQLite of their own; needs apt-get, dpkg-source, tclsh and a C compiler.
set -euo pipefail

folder=$1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# shellcheck disable=SC1091
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
# The machine's own list of sources stays as it is.
mkdir -p "$folder/apt/lists/partial"
cat > "$folder/apt/source.sources" <<END
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: $suite
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
options=(-qq -o "Dir::Etc::sourcelist=$folder/apt/source.sources" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$folder/apt/lists" -o "APT::Sandbox::User=$(id -un)")
cd "$folder/apt"
apt-get "${options[@]}" update
apt-get "${options[@]}" source sqlite3 >/dev/null
cd sqlite3-*/
./configure --disable-tcl --disable-readline >/dev/null
make sqlite3.c sqlite3.h >/dev/null
cp sqlite3.c sqlite3.h "$folder"
rm -rf "$folder/apt"
