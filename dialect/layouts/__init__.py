"""Layouts: which lane and register hold which element, the algebra of that, and ways from one to another."""
