#!/bin/sh
# Makes the parts of /opt/outbox, the virtual environment of an image, inside the Dockerfile's builder:
#   environment.sh packages LOCK   the environment with what the lock names, and nothing else
#   environment.sh code SOURCE     this repository's packages, in a folder that the environment looks into
set -eu

environment=/opt/outbox
code="$environment/code"

# By content and never checked again: an image's files do not change, though copying may change their times.
compile() {
    "$1" -m compileall -q --invalidation-mode unchecked-hash "$2"
}

# Sources of extension modules, and the tests that some packages install.
strip() {
    find "$environment/lib" -type f \
        \( -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.c' -o -name '*.h' \) -delete
    find "$environment/lib" -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
}

case "$1" in
packages)
    # No pip inside: nothing is installed into a running container.
    python3 -m venv --without-pip "$environment"
    tools/bin/pip --python "$environment/bin/python" install --quiet --no-compile --no-deps --require-hashes -r "$2"
    strip
    for folder in "$environment"/lib/python*/site-packages; do
        echo "$code" >"$folder/outbox.pth"
    done
    compile "$environment/bin/python" "$environment/lib"
    ;;
code)
    (cd "$2" && ../tools/bin/python -m hatchling build --target wheel --directory /build/wheel)
    tools/bin/pip install --quiet --no-compile --no-deps --no-index --target "$code" wheel/*.whl
    compile python3 "$code"
    ;;
*)
    echo "usage: $0 packages LOCK | code SOURCE" >&2
    exit 2
    ;;
esac
