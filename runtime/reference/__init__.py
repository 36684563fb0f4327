"""The reference: a function evaluated in float64, and the bound on the error of a result."""
