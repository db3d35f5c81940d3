"""The CDP endpoint: a browser of its own for every client, as far as it can tell, on Chromiums that are shared."""
