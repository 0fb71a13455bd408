"""The command line: one file for each command, loaded when it is needed."""

from strandline.cli.main import main
