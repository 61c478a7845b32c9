"""Run the command line: ``python -m grader --help``."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C ends it quietly, even while it is still loading."""
    try:
        from grader.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
