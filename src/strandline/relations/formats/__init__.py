"""One file for each kind of input: how it is found, how it is cut into splits, how a split is read."""
