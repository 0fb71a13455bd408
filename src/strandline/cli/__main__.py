"""`python -m strandline.cli`: the command where no script is installed."""

from strandline.cli.main import main

if __name__ == "__main__":
    main()
