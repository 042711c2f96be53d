"""Where a bundle starts: the process's first lines, then the command line as everywhere."""

import multiprocessing
import sys


def main() -> int:
    multiprocessing.freeze_support()  # returns only in the first process
    from app.frozen import make_ready

    make_ready()
    from engine import itself

    if itself.run_if_asked(sys.argv):
        return 0
    from app.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
