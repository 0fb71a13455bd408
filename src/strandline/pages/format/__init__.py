"""What the control plane stores, and how it is encoded: pointer, master, nodes, page table, directory."""
