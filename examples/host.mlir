func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
// A host program: it fills A and B with small integers, multiplies them on the GPU, and prints C.
func.func @matmul(%A: memref<40x56xf16>, %B: memref<56x24xf16>, %C: memref<40x24xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<40x24xf32>)
  linalg.matmul ins(%A, %B : memref<40x56xf16>, memref<56x24xf16>) outs(%C : memref<40x24xf32>)
  return
}
func.func @main() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c24 = arith.constant 24 : index
  %c40 = arith.constant 40 : index
  %c56 = arith.constant 56 : index
  %A = memref.alloc() : memref<40x56xf16>
  %B = memref.alloc() : memref<56x24xf16>
  %C = memref.alloc() : memref<40x24xf32>
  scf.for %i = %c0 to %c40 step %c1 {
    scf.for %j = %c0 to %c56 step %c1 {
      %d = arith.subi %i, %j : index
      %n = arith.index_cast %d : index to i32
      %x = arith.sitofp %n : i32 to f16
      memref.store %x, %A[%i, %j] : memref<40x56xf16>
    }
  }
  scf.for %i = %c0 to %c56 step %c1 {
    scf.for %j = %c0 to %c24 step %c1 {
      %d = arith.addi %i, %j : index
      %n = arith.index_cast %d : index to i32
      %x = arith.sitofp %n : i32 to f16
      memref.store %x, %B[%i, %j] : memref<56x24xf16>
    }
  }
  %a = memref.cast %A : memref<40x56xf16> to memref<*xf16>
  %b = memref.cast %B : memref<56x24xf16> to memref<*xf16>
  %c = memref.cast %C : memref<40x24xf32> to memref<*xf32>
  gpu.host_register %a : memref<*xf16>
  gpu.host_register %b : memref<*xf16>
  gpu.host_register %c : memref<*xf32>
  call @matmul(%A, %B, %C) : (memref<40x56xf16>, memref<56x24xf16>, memref<40x24xf32>) -> ()
  call @printMemrefF32(%c) : (memref<*xf32>) -> ()
  return
}
