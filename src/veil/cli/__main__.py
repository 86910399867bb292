"""The entry point of `python -m veil.cli`."""

import sys

from veil.cli import main

sys.exit(main())
