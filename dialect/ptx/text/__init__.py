"""PTX as text: records of its syntax, the parser, the printer, and the importer to the dialect `ptx`."""
