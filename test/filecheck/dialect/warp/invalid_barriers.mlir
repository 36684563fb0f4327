// RUN: warploom-opt %s --split-input-file --verify-diagnostics

func.func @no_arrivals() {
  // expected-error @below {{expected 1 to 1048575 arrivals, got 0}}
  %full = warp.make_barriers {arrivals = 0 : i64} : !warp.barriers<8>
  return
}

// -----

func.func @many_arrivals() {
  // expected-error @below {{expected 1 to 1048575 arrivals, got 1048576}}
  %full = warp.make_barriers {arrivals = 1048576 : i64} : !warp.barriers<8>
  return
}

// -----

// expected-error @below {{expected at least one barrier, got 0}}
func.func @no_barriers(%b: !warp.barriers<0>) {
  return
}
