"""The `tabherd` command."""
