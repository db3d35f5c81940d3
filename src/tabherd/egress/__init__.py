"""The proxy through which the pages of a pool with a network policy reach the network, and nothing else does."""
