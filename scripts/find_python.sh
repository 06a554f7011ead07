#!/bin/sh
# Prints a Python >= 3.12 that can make a virtual environment. PYTHON=/path/to/python says which one to use.
# Being on the PATH proves nothing (a pyenv shim is there even when its version is not selected), so each candidate is run.
probe='import sys, venv, ensurepip; sys.version_info >= (3, 12) or sys.exit(1); print(sys.executable)'

try() {
    found=$("$1" -c "$probe" 2>/dev/null) && [ -n "$found" ] && echo "$found"
}

if [ -n "${PYTHON:-}" ]; then
    try "$PYTHON" && exit 0
    echo "PYTHON=$PYTHON is not a Python >= 3.12 with the venv and ensurepip modules." >&2
    exit 1
fi

for command in python3.13 python3.12 python3 python; do
    try "$command" && exit 0
done

pyenv_root=${PYENV_ROOT:-$HOME/.pyenv}
for version in 3.13 3.12 3.14; do
    for folder in "$pyenv_root"/versions/"$version"*; do
        try "$folder/bin/python" && exit 0
    done
done

if command -v uv >/dev/null 2>&1; then
    for attempt in find install; do
        [ $attempt = find ] || uv python install 3.13 >&2
        path=$(uv python find --no-project '>=3.12' 2>/dev/null) && try "$path" && exit 0
    done
fi

cat >&2 <<'MESSAGE'
No Python >= 3.12 with the venv module was found (looked for python3.13, python3.12, python3, pyenv's versions and uv's).
Install one (on Debian or Ubuntu with its python3-venv package), or say where it is: make setup PYTHON=/path/to/python3.13
MESSAGE
exit 1
