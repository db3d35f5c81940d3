"""The live view: what people see of a tab, and how they take it over."""
