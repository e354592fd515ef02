#!/usr/bin/env bash
# scripts/sqlite_source.sh FOLDER: puts SQLite's sqlite3.c and sqlite3.h into FOLDER, made from Debian's source package, whose signature
# apt checks. For builds for systems that have no SQLite of their own; needs apt-get, dpkg-source, tclsh and a C compiler.
set -euo pipefail

folder=$1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# Lists of source packages, made from the machine's lists of binary packages. The machine's own lists are not changed.
mkdir -p "$folder/apt/lists/partial" "$folder/apt/sources"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  if [ -e "$file" ]; then sed -n 's/^deb /deb-src /p' "$file" > "$folder/apt/sources/$(basename "$file" .list).list"; fi
done
for file in /etc/apt/sources.list.d/*.sources; do
  if [ -e "$file" ]; then sed 's/^Types:.*/Types: deb-src/' "$file" > "$folder/apt/sources/$(basename "$file")"; fi
done
options=(-qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$folder/apt/sources"
  -o "Dir::State::lists=$folder/apt/lists" -o "APT::Sandbox::User=$(id -un)")
cd "$folder/apt"
apt-get "${options[@]}" update
apt-get "${options[@]}" source sqlite3 >/dev/null
cd sqlite3-*/
./configure --disable-tcl --disable-readline >/dev/null
make sqlite3.c sqlite3.h >/dev/null
cp sqlite3.c sqlite3.h "$folder"
rm -rf "$folder/apt"
