// RUN: warploom-opt %s | filecheck %s

func.func @f(%a: index, %b: index, %i: i32) {
  // CHECK: index.add %a, %b
  %0 = index.add %a, %b
  // CHECK: index.sub %a, %b
  %1 = index.sub %a, %b
  // CHECK: index.mul %a, %b
  %2 = index.mul %a, %b
  // CHECK: index.divs %a, %b
  %3 = index.divs %a, %b
  // CHECK: index.divu %a, %b
  %4 = index.divu %a, %b
  // CHECK: index.ceildivs %a, %b
  %5 = index.ceildivs %a, %b
  // CHECK: index.ceildivu %a, %b
  %6 = index.ceildivu %a, %b
  // CHECK: index.floordivs %a, %b
  %7 = index.floordivs %a, %b
  // CHECK: index.rems %a, %b
  %8 = index.rems %a, %b
  // CHECK: index.remu %a, %b
  %9 = index.remu %a, %b
  // CHECK: index.maxs %a, %b
  %10 = index.maxs %a, %b
  // CHECK: index.maxu %a, %b
  %11 = index.maxu %a, %b
  // CHECK: index.mins %a, %b
  %12 = index.mins %a, %b
  // CHECK: index.minu %a, %b
  %13 = index.minu %a, %b
  // CHECK: index.shl %a, %b
  %14 = index.shl %a, %b
  // CHECK: index.shrs %a, %b
  %15 = index.shrs %a, %b
  // CHECK: index.shru %a, %b
  %16 = index.shru %a, %b
  // CHECK: index.and %a, %b
  %17 = index.and %a, %b
  // CHECK: index.or %a, %b
  %18 = index.or %a, %b
  // CHECK: index.xor %a, %b
  %19 = index.xor %a, %b
  // CHECK: index.casts %a : index to i32
  %20 = index.casts %a : index to i32
  // CHECK: index.castu %i : i32 to index
  %21 = index.castu %i : i32 to index
  // CHECK: index.constant 4
  %22 = index.constant 4
  return
}
