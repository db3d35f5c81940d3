"""MCP: the tools by which a model drives its sessions, over stdio or inside the server. Needs `tabherd[mcp]`."""
