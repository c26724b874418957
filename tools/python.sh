#!/bin/sh
# Prints the path of a Python $1 (as 3.14) that can make virtual environments: one that is installed, or one
# that is unpacked from Debian's packages into the user's cache. Nothing is installed, and root is not needed:
# it has its own loader and libraries beside it, and runs on a Linux with an older libc.
set -eu

version="$1"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/outbox-operator/python"
home="$cache/$version"
python="$home/usr/bin/python$version"

# Debian splits ensurepip from Python: without it a virtual environment has no pip.
can_make_venv() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

fail() {
    echo "error: $1" >&2
    exit 1
}

clean_up() {
    status=$?
    [ "$status" = 0 ] || tail -n 20 "$work/log" >&2
    rm -rf "$work"
    [ "$status" = 0 ] || fail "Python $version could not be had from $mirror; remove $home, or install python$version"
}

# The first release of Debian that has this version.
suite_of() {
    case "$1" in
        3.11) echo bookworm ;;
        3.13) echo trixie ;;
        3.14 | 3.15) echo forky ;;
        *) fail "Debian has no Python $1: install it, with its venv module, as python$1" ;;
    esac
}

# Has apt resolve and check the packages as on a machine with nothing installed.
download() {
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/etc/preferences.d"
    : >"$apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/etc/sources.list"
    set -- -q -o Dir::Etc="$apt/etc" -o Dir::Etc::Parts="$apt/none" -o Dir::State="$apt" \
        -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" -o APT::Sandbox::User=
    apt-get "$@" update
    apt-get "$@" install --yes --download-only --no-install-recommends "python$version-venv" patchelf
}

# Makes what was unpacked into $new run from $home, where it is moved when it is complete.
relocate() {
    libraries="$(echo "$new"/usr/lib/*-linux-gnu)"
    loader="$(echo "$libraries"/ld-linux-*.so.*)"
    there="$home${libraries#"$new"}"
    # A search path that also counts for the libraries of libraries, and not for programs started from Python.
    patch --force-rpath --set-rpath "$there"
    # In a second run: patchelf 0.18 breaks the program if it changes both at once.
    patch --set-interpreter "$there/${loader##*/}"
    # Debian's ensurepip looks for the wheel of pip in this folder.
    sed -i "s|/usr/share/python-wheels|$home/usr/share/python-wheels|" \
        "$new/usr/lib/python$version"/_sysconfigdata*.py
}

patch() {
    "$loader" --library-path "$libraries" "$new/usr/bin/patchelf" "$@" "$new/usr/bin/python$version"
}

unpack() {
    for package in "$apt"/archives/*.deb; do
        dpkg-deb --extract "$package" "$new"
    done
    relocate
    mv -T "$new" "$home"
}

if can_make_venv "python$version"; then
    command -v "python$version"
    exit
fi
if ! can_make_venv "$python"; then
    suite="$(suite_of "$version")"
    mirror="${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
    for program in apt-get dpkg-deb; do
        command -v "$program" >/dev/null ||
            fail "no Python $version found, and no $program to fetch it from Debian: install it as python$version"
    done
    echo "fetching Python $version of Debian $suite into $home (22 MB) …" >&2
    mkdir -p "$cache"
    # Beside its place, so that it is either there and complete or not there.
    work="$(mktemp -d "$cache/unpacking-XXXXXX")"
    trap clean_up EXIT
    apt="$work/apt" new="$work/new"
    mkdir "$new"
    rm -rf "$home"
    download </dev/null >"$work/log" 2>&1
    unpack </dev/null >>"$work/log" 2>&1
    can_make_venv "$python"
fi
echo "$python"
