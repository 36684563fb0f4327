"""What kernels are called with: arrays of any maker, records, tensor maps, and the memory that they share."""
