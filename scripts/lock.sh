#!/bin/sh
# Writes the lock files in requirements/ anew from pyproject.toml. Run it through `make lock`.
# They hold versions and hashes only: no index address, no path, so that they serve everywhere.
set -eu
cd "$(dirname "$0")/.."

if ! uv="$(command -v uv)"; then
    uv=.cache/lock/bin/uv
    [ -x "$uv" ] || { "${PYTHON:-python3}" -m venv .cache/lock && .cache/lock/bin/python -m pip install --quiet uv; }
fi

compile() { # name of the lock file, then the arguments that say what goes in
    name="$1"
    shift
    new="$(mktemp)"
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-emit-index-url --no-emit-find-links --upgrade "$@" pyproject.toml --output-file "$new"
    {
        echo "# Made by \`make lock\` from pyproject.toml; do not edit. Python 3.11 and newer."
        cat "$new"
    } >"requirements/$name.txt"
    rm -f "$new"
    echo "requirements/$name.txt: $(grep -c '==' "requirements/$name.txt") packages"
}

mkdir -p requirements
compile dev --extra dev --extra build
# The others take the versions that the tests ran with.
compile core --extra build --constraint requirements/dev.txt
compile run --extra spark --extra build --constraint requirements/dev.txt
# Comes on top of dev.txt, so what the core brings is left out here.
# shellcheck disable=SC2046
compile fuzz --extra fuzz --constraint requirements/dev.txt \
    $(sed -n 's/^\([a-z0-9.-]*\)==.*/--no-emit-package \1/p' requirements/core.txt)
