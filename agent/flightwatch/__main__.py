"""`python -m flightwatch` is the `flightwatch` command."""

import sys

from flightwatch.cli import main

sys.exit(main())
