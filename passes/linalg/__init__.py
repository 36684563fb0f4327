"""On `linalg`: what is asked, read, brought to one form and fused."""
