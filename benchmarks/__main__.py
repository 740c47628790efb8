"""The one runner of the benchmarks: ``python -m benchmarks --help``."""

import sys

from benchmarks.series import main

if __name__ == "__main__":
    sys.exit(main())
