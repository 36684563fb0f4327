"""Layouts: which lane and register hold which element, their algebra, and conversions between them."""
