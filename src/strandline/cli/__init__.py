"""The command line: one file for each command, loaded when it is needed."""

import sys

try:
    from strandline.cli.main import main
except KeyboardInterrupt:
    # There is no command yet to tell it; `main` tells it in these words.
    if "--json" in sys.argv:
        sys.stdout.write('{"error": "Cancelled", "why": "stopped by the user"}\n')
    sys.stderr.write("Stopped.\n")
    sys.exit(130)

__all__ = ["main"]
