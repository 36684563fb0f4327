func.func @f(%A: memref<64xf32>, %B: memref<64xf32>) {
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c32 = arith.constant 32 : index
  %two = arith.constant 2.5 : f32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c2, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) workgroup(%w : memref<32xf32, #gpu.address_space<workgroup>>) {
    %o = arith.muli %bx, %sx : index
    %i = arith.addi %o, %tx : index
    %v = memref.load %A[%i] : memref<64xf32>
    memref.store %v, %w[%tx] : memref<32xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %c31 = arith.constant 31 : index
    %r = arith.subi %c31, %tx : index
    %x = memref.load %w[%r] : memref<32xf32, #gpu.address_space<workgroup>>
    %y = arith.mulf %x, %two : f32
    %big = arith.cmpf ogt, %y, %two : f32
    %z = scf.if %big -> (f32) {
      %q = math.sqrt %y : f32
      scf.yield %q : f32
    } else {
      scf.yield %y : f32
    }
    memref.store %z, %B[%i] : memref<64xf32>
    gpu.terminator
  }
  return
}
