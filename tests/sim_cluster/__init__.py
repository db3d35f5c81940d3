"""A deterministic world of several nodes on one store: the real brokers, memberships and routing, on virtual time.

`python -m tests.sim_cluster --seed K` replays one history and prints it; `--seeds N` runs N of them.
"""
