#!/usr/bin/env bash
# scripts/libraries.sh VENV FOLDER: a virtual environment for the programs of tests/libraries, which sees the packages of VENV too. What it
# installs comes without dependencies: none may bring another torch.
set -euo pipefail

venv=$1 folder=$2
[ -x "$folder/bin/python" ] || "$venv/bin/python" -m venv --without-pip "$folder"
packages() { "$1/bin/python" -c "import site; print(site.getsitepackages()[0])"; }
echo "import site; site.addsitedir('$(packages "$(realpath -s "$venv")")')" > "$(packages "$folder")/zz_tests.pth"
"$venv/bin/python" -m pip --python "$folder/bin/python" install --quiet --disable-pip-version-check --no-deps -r tests/libraries/requirements.txt
