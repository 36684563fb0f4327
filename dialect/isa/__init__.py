"""The ISA as frozen rows: element types, targets, and one module per instruction family. Nothing in here imports xDSL
or numpy: rows are data, and every other room derives from them."""
