// RUN: warploom-opt %s --split-input-file --verify-diagnostics -p convert-warp-to-ptx

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %zero = arith.constant 0 : index
  %warp = "gpu.subgroup_id"() : () -> index
  %p = arith.cmpi eq, %warp, %zero : index
  // expected-error @below {{expected scf.if with results to have an else, which yields them too}}
  %x = scf.if %p -> (index) {
    scf.yield %zero : index
  }
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %zero = arith.constant 0 : index
  %warp = "gpu.subgroup_id"() : () -> index
  %p = arith.cmpi eq, %warp, %zero : index
  // expected-error @+4 {{expected a yield of (index), got (i1)}}
  %x = scf.if %p -> (index) {
    scf.yield %zero : index
  } else {
    scf.yield %p : i1
  }
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %zero = arith.constant 0 : index
  %warp = "gpu.subgroup_id"() : () -> index
  %p = arith.cmpi eq, %warp, %zero : index
  // expected-error @+4 {{gpu.barrier takes whole warps; below nvvm.elect.sync one lane is alone}}
  %chosen = nvvm.elect.sync -> i1
  %both = arith.andi %p, %chosen : i1
  scf.if %both {
    "gpu.barrier"() : () -> ()
  }
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %zero = arith.constant 0 : index
  %warp = "gpu.subgroup_id"() : () -> index
  %p = arith.cmpi eq, %warp, %zero : index
  // expected-error @+4 {{warp.constant takes whole warps; below nvvm.elect.sync one lane is alone}}
  %chosen = nvvm.elect.sync -> i1
  scf.if %chosen {
    scf.if %p {
      %c = warp.constant 0.0 : f32 : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    }
  }
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %zero = arith.constant 0 : index
  %warp = "gpu.subgroup_id"() : () -> index
  %p = arith.cmpi eq, %warp, %zero : index
  // expected-error @+4 {{the elected lane does warp.arrive here; leave 'by' out}}
  %full = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<1>
  %chosen = nvvm.elect.sync -> i1
  scf.if %chosen {
    warp.arrive %full[%zero] {bytes = 16 : i64, by = 32 : i64} : !warp.barriers<1>
  }
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %zero = arith.constant 0 : index
  %warp = "gpu.subgroup_id"() : () -> index
  %p = arith.cmpi eq, %warp, %zero : index
  // expected-error @below {{nvvm.elect.sync takes elect.sync, which needs sm_90 or later; the target is sm_80}}
  %chosen = nvvm.elect.sync -> i1
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %zero = arith.constant 0 : index
  %warp = "gpu.subgroup_id"() : () -> index
  %p = arith.cmpi eq, %warp, %zero : index
  // expected-error @below {{arith.cmpi ult on elements of i1 is not lowered; eq and ne are}}
  %same = arith.cmpi ult, %p, %p : i1
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}
