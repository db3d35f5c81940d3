"""Tests of `tabherd.mcp` and of `/mcp`. Not named `mcp`: the directory would hide the SDK of that name."""
