"""Checks of PTX without assembling it: names, declarations, instructions, and errors that can be proved."""
