"""`tabherd demo`: a crowd of agents on local pages, shown live, crashed on purpose, and recounted afterwards.

`record` is the evidence and `recount` judges it, purely. `site` and `pages` are what the agents visit, `own_server` is
the server that the demo starts for itself, `agent` is one agent and `crowd` all of them. `story` is what happens to
them, `show` is how it looks, and `run` begins and ends it all.
"""
