"""tabherd: one door to your browsers for a crowd of agents."""

__version__ = "0.1.0"
