// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{Expected ','}}
func.func @sizes(%n: index) {
  gpu.launch_func @kernels::@f blocks in (%n, %n) threads in (%n, %n, %n)
  return
}

// -----

// expected-error @+3 {{Expected 'threads'}}
func.func @missing(%n: index) {
  gpu.launch_func @kernels::@f blocks in (%n, %n, %n)
  return
}

// -----

// expected-error @+2 {{Expected '>'}}
func.func @streams(%n: index) {
  gpu.launch_func <%n : index, %n : index> @kernels::@f blocks in (%n, %n, %n) threads in (%n, %n, %n)
  return
}

// -----

// expected-error @+2 {{5 : i64 should be of base attribute symbol_ref}}
func.func @name(%n: index) {
  gpu.launch_func 5 blocks in (%n, %n, %n) threads in (%n, %n, %n)
  return
}

// -----

// expected-error @+2 {{gpu.func: expected a body, got a declaration}}
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (index) -> ()}> ({}) {sym_name = "f"} : () -> ()
}) : () -> ()
