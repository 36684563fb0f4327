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
  // expected-error @below {{warp.pipeline: expected a step of producer_acquire, producer_commit, consumer_wait, consumer_release, producer_advance, consumer_advance, got 'produce'}}
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

func.func @advance(%ring: !warp.ring<4>, %i: index) {
  // expected-error @below {{warp.pipeline: expected 'by' in producer_advance or consumer_advance, and a stage in other steps, got producer_advance}}
  warp.pipeline producer_advance %ring[%i] : !warp.ring<4>
  return
}

// -----

func.func @late(%ring: !warp.ring<4>, %i: index) {
  // expected-error @below {{warp.pipeline: expected late in consumer_release or consumer_advance, of the stage that it is at, got it in consumer_release}}
  warp.pipeline consumer_release %ring[%i] {late} : !warp.ring<4>
  return
}

// -----

func.func @number(%ring: !warp.ring<4>) {
  // expected-error @below {{warp.pipeline: expected a number of producer_acquire or consumer_wait without a stage, got one of consumer_release}}
  %s = warp.pipeline consumer_release %ring : !warp.ring<4> -> index
  return
}

// -----

// No ring says where its producers and consumers are.
func.func @no_ring(%ring: !warp.ring<4>) {
  warp.pipeline producer_commit %ring : !warp.ring<4>
  return
}

// -----

func.func @other() -> !warp.ring<4> {
  %ring = warp.make_ring {ahead = 1 : i64} : !warp.ring<4>
  // expected-error @below {{func.return is no step of a ring}}
  return %ring : !warp.ring<4>
}

// -----

func.func @while(%c: i1) {
  %ring = warp.make_ring {writers = 1 : i64, readers = 1 : i64} : !warp.ring<4>
  // expected-error @below {{expected steps that go on to other stages in scf.for, which carries them, not in scf.while}}
  scf.while () : () -> () {
    warp.pipeline producer_advance %ring : !warp.ring<4>
    scf.condition(%c)
  } do {
    scf.yield
  }
  return
}
