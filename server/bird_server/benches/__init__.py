"""Measurements of the product, each against the obvious alternative in the same run. One module a benchmark."""
