#!/bin/sh
# Makes the virtual environment $1 (default .venv) with this package and everything its tests need, of Python $2
# (as 3.14) if that is given. Without, it takes the Python that is there. On a Debian without a usable Python it
# installs one, if it may; elsewhere it says what to install.
set -eu

venv="${1:-.venv}"
version="${2:-}"
minimum="3.11"
here="$(cd "$(dirname "$0")/.." && pwd)"

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Debian splits ensurepip from Python: without it a virtual environment has no pip.
can_make_venv() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

find_python() {
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$python" && can_make_venv "$python"; then
            echo "$python"
            return
        fi
    done
}

may_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

install_python() {
    echo "installing python3 and python3-venv with apt-get (about half a minute) …" >&2
    {
        apt-get -q update
        DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 \
            install --yes --no-install-recommends python3 python3-venv
    } </dev/null >"$log" 2>&1 || fail "apt-get could not install python3-venv"
}

fail() {
    tail -n 20 "$log" >&2
    echo "error: $1" >&2
    exit 1
}

log="$(mktemp)"
trap 'rm -f "$log"' EXIT

# An environment that works is kept: a change of pyproject.toml only adds to it.
is_usable() {
    [ -x "$1/bin/python" ] && is_new_enough "$1/bin/python" && "$1/bin/python" -c 'import pip' >/dev/null 2>&1
}

make_venv() {
    if [ -n "$version" ]; then
        python="$("$here/tools/python.sh" "$version")"
    else
        python="$(find_python)"
    fi
    if [ -z "$python" ] && may_install; then
        install_python
        python="$(find_python)"
    fi
    if [ -z "$python" ]; then
        fail "no Python $minimum or newer with venv found: install it (Debian, as root: apt-get install python3-venv)"
    fi
    "$python" -m venv --clear "$venv" </dev/null >"$log" 2>&1 || fail "$python -m venv $venv failed"
}

is_usable "$venv" || make_venv
echo "installing the package and its tools into $venv (about a minute) …" >&2
"$venv/bin/python" -m pip install --disable-pip-version-check --no-input --editable "$here[dev]" \
    </dev/null >"$log" 2>&1 ||
    fail "pip could not install the package into $venv; is the package index reachable?"
