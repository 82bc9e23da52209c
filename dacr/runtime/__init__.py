"""How a stage runs: its end, its device, its bits, its progress, and what it notes beside."""
