"""`python -m tests.images [NAME…]`: build the images and write them to files for a cluster.

Without names it builds all of them. Load a file with `python -m tests.cluster load FILE`.
"""

import argparse
import sys

from outbox_cli.local.errors import LocalServiceError
from tests.images.build import build
from tests.images.buildah import ImageError
from tests.images.catalogue import IMAGES


def main() -> int:
    by_name = {image.name: image for image in IMAGES}
    parser = argparse.ArgumentParser(
        prog="tests.images",
        description=__doc__,
        epilog=f"images: {', '.join(by_name)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="an image, such as shop:1.0")
    parser.add_argument("--base", help="a base image to pull, instead of one from Debian's packages")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(by_name):
        parser.error(f"there is no image {', '.join(sorted(unknown))}; there are {', '.join(by_name)}")
    images = [by_name[name] for name in arguments.names or by_name]
    try:
        built = build(_say, images, arguments.base)
    except (ImageError, LocalServiceError) as error:
        _say(f"images: {error}")
        return 1
    print(built.sizes())  # noqa: T201 - a command for people
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - a command for people


if __name__ == "__main__":
    sys.exit(main())
