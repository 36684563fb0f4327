"""Checking PTX without assembling it: names, declarations, instructions, and what can be proved wrong of them."""
