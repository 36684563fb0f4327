"""Arguments of kernels: arrays of any library, structs, tensor maps, and the memory that they share."""
