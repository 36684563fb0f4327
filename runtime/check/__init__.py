"""Checking PTX text against the instruction rows, without assembling it."""
