"""Clients of the HTTP API: `Tabherd` waits for each answer."""

from .sync import Tabherd

__all__ = ["Tabherd"]
