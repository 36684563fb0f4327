"""PTX as text: records of its syntax, the parser, the printer, and the way into the dialect `ptx`."""
