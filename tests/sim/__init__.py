"""A deterministic world in which the real broker runs against fake browsers, with crashes between any two steps.

`python -m tests.sim --seed K` replays one history and prints it; `--seeds N` runs N of them.
"""
