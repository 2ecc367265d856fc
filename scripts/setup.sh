#!/bin/sh
# Brings .venv to what the lock files say, and does nothing when it is there already.
#   scripts/setup.sh core    what Ottla itself needs, and the compiled kernel
#   scripts/setup.sh run     also Spark, for pipelines
#   scripts/setup.sh dev     also what tests, checks and benchmarks need
#   scripts/setup.sh fuzz    also the fuzzer
# Uses uv when it is on the PATH, else venv and pip.
set -eu
cd "$(dirname "$0")/.."
level="${1:-dev}"
venv_python=.venv/bin/python

say() { echo "ottla: $*"; }
stop() { echo "ottla: $*" >&2; exit 1; }
digest() { cat "$@" 2>/dev/null | cksum | tr -d ' \t'; }

find_python() {
    for name in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
}

make_venv() {
    # A .venv that was moved or whose Python is gone cannot be mended, only made anew.
    if [ -x "$venv_python" ] && "$venv_python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        return
    fi
    rm -rf .venv
    if command -v uv >/dev/null; then
        python="$(find_python)"
        say "making .venv with uv"
        uv venv --quiet --no-project --python "${python:-3.11}" .venv
        return
    fi
    python="$(find_python)"
    [ -n "$python" ] || stop "Python 3.11 or newer was not found; install it (or uv), or name it: make PYTHON=/path/to/python3"
    say "making .venv with $("$python" --version)"
    "$python" -m venv .venv >.venv.log 2>&1 || install_ensurepip "$python"
    rm -f .venv.log
}

# Debian splits ensurepip off; without it venv makes half an environment and fails.
install_ensurepip() {
    rm -rf .venv .venv.log
    version="$("$1" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')"
    package="$version-venv"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $package"
        scripts/apt.sh "$package" && "$1" -m venv .venv && return
    fi
    rm -rf .venv
    stop "$version cannot make virtual environments; install $package (or uv) and try again"
}

install() {
    if command -v uv >/dev/null; then
        uv pip install --quiet --python "$venv_python" "$@"
        return
    fi
    "$venv_python" -m pip --version >/dev/null 2>&1 || "$venv_python" -m ensurepip >/dev/null
    "$venv_python" -m pip install --quiet --disable-pip-version-check "$@"
}

# Runs a command that takes long and says little, and says every now and then that it goes on.
with_patience() {
    {
        seconds=0
        # Ends with the shell that started it, however that ends.
        while sleep 10 && kill -0 $$ 2>/dev/null; do
            seconds=$((seconds + 10))
            say "still installing ($seconds s) ..."
        done
    } &
    ticker=$!
    status=0
    "$@" || status=$?
    kill "$ticker" 2>/dev/null || true
    return "$status"
}

# Installs one lock file unless a stamp says that this very file has been installed.
install_lock() {
    stamp=".venv/.installed-$1"
    want="$(digest "requirements/$1.txt")"
    [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
    if grep -q '^pyspark==' "requirements/$1.txt" && ! "$venv_python" -c 'import pyspark' 2>/dev/null; then
        say "installing requirements/$1.txt; Spark is part of it: 490 MB on disk, a minute or two, only this once"
    else
        say "installing requirements/$1.txt"
    fi
    with_patience install --require-hashes --requirement "requirements/$1.txt"
    echo "$want" >"$stamp"
}

# The package itself, editable, with the kernel built in place; again when a source of the build changes.
install_package() {
    stamp=.venv/.installed-ottla
    # Names without spaces, all of them ours; the order must not depend on the file system.
    sources="$(find src -name '*.pyx' -o -name '*.pxi' -o -name '*.pxd' | sort)"
    # shellcheck disable=SC2086
    want="$(digest pyproject.toml setup.py $sources "$venv_python")"
    [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
    say "building and installing ottla"
    # What an earlier source or another Python left behind must not pass for this one's kernel.
    rm -rf build src/ottla/records/_kernel*.so
    install --no-deps --no-build-isolation --editable .
    "$venv_python" -c 'import ottla.records._kernel' 2>/dev/null ||
        say "no compiled kernel (is a C compiler installed?); the slower plain-Python fall-back is used"
    echo "$want" >"$stamp"
}

make_venv
case "$level" in
    # What is more than was asked for is not taken away again.
    core) [ -f .venv/.installed-dev ] || [ -f .venv/.installed-run ] || install_lock core ;;
    run) [ -f .venv/.installed-dev ] || install_lock run ;;
    dev) install_lock dev ;;
    fuzz) install_lock dev && install_lock fuzz ;;
    *) stop "unknown level $level: core, run, dev or fuzz" ;;
esac
install_package
