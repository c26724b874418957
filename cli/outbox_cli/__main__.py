"""`outbox`, and `python -m outbox_cli`: the command, or what to install for it."""

import sys


def main() -> None:
    """Run the command, and leave with its exit code."""
    try:
        from outbox_cli.command import main as command
    except ModuleNotFoundError as error:
        # Every install has the script, and only the extra has what it stands on.
        if (error.name or "").startswith("outbox"):
            raise
        print(
            f"outbox: the command needs {error.name}; run pip install 'outbox-operator[cli]'", file=sys.stderr
        )
        sys.exit(1)
    command()


if __name__ == "__main__":
    main()
