// RUN: warploom-opt %s --split-input-file --verify-diagnostics -p warp-synchronise

// expected-error @below {{expected at least one stage, got 0}}
func.func @stages(%r: !warp.ring<0>) {
  return
}

// -----

func.func @nothing() {
  // expected-error @below {{warp.make_ring: expected either the writers and the readers of a stage, or 'ahead'}}
  %ring = warp.make_ring {writers = 1 : i64} : !warp.ring<4>
  return
}

// -----

func.func @peers(%a: index) {
  // expected-error @below {{warp.make_ring: a barrier of a CTA has no peers}}
  %ring = warp.make_ring peers(%a) {ahead = 1 : i64} : !warp.ring<4>
  return
}

// -----

func.func @step(%ring: !warp.ring<4>) {
  // expected-error @below {{warp.pipeline: expected a step of producer_acquire, producer_commit, consumer_wait, consumer_release, got 'produce'}}
  warp.pipeline produce %ring : !warp.ring<4>
  return
}

// -----

func.func @parity(%ring: !warp.ring<4>, %i: index) {
  // expected-error @below {{warp.pipeline: expected a parity where a stage is waited for, and nowhere else, in consumer_wait}}
  warp.pipeline consumer_wait %ring[%i] : !warp.ring<4>
  return
}

// -----

func.func @bytes(%ring: !warp.ring<4>, %i: index) {
  // expected-error @below {{warp.pipeline: expected bytes in producer_acquire, got them in producer_commit}}
  warp.pipeline producer_commit %ring[%i] {bytes = 16 : i64} : !warp.ring<4>
  return
}

// -----

func.func @no_stage() {
  %ring = warp.make_ring {writers = 1 : i64, readers = 1 : i64} : !warp.ring<4>
  // expected-error @below {{expected a stage of a ring that is not waited for at a barrier of the CTA}}
  warp.pipeline producer_commit %ring : !warp.ring<4>
  return
}

// -----

func.func @other() -> !warp.ring<4> {
  %ring = warp.make_ring {ahead = 1 : i64} : !warp.ring<4>
  // expected-error @below {{func.return is no step of a ring}}
  return %ring : !warp.ring<4>
}
