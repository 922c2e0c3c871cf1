"""Experiments: a matrix of recipes and seeds, trained, scored and put into one table."""
