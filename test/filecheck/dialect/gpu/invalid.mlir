// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{expected 3 sizes of blocks, got 2}}
func.func @sizes(%n: index) {
  gpu.launch_func @kernels::@f blocks in (%n, %n) threads in (%n, %n, %n)
  return
}

// -----

// expected-error @+3 {{Expected 'threads' before the sizes: threads in (%x, %y, %z)}}
func.func @missing(%n: index) {
  gpu.launch_func @kernels::@f blocks in (%n, %n, %n)
  return
}

// -----

// expected-error @+2 {{expected one object to queue the launch on, got 2}}
func.func @streams(%n: index) {
  gpu.launch_func <%n : index, %n : index> @kernels::@f blocks in (%n, %n, %n) threads in (%n, %n, %n)
  return
}

// -----

// expected-error @+2 {{expected the name of a kernel, as @kernels::@f, got 5}}
func.func @name(%n: index) {
  gpu.launch_func 5 blocks in (%n, %n, %n) threads in (%n, %n, %n)
  return
}

// -----

// expected-error @+2 {{gpu.func: expected a body, got a declaration}}
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (index) -> ()}> ({}) {sym_name = "f"} : () -> ()
}) : () -> ()
