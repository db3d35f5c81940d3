"""Random mutations of good inputs for everything that reads what a stranger wrote; `python -m tests.fuzz`."""
