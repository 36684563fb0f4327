"""An oracle for programs that write kernels: whether a candidate computes what a reference says."""
