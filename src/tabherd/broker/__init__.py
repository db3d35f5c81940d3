"""The verbs: one function for each thing a caller can ask, whatever protocol the request came by."""
