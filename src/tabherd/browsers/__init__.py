"""Chromium: finding, launching, speaking to and ending it."""
