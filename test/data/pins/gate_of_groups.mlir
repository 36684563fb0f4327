// target=sm_90a cta=64,64,64 mma=m64n64k16 ctas=3

memref.global constant @ends : memref<4xi32> = dense<[17, 17, 60, 70]>

func.func @f(%A: memref<70x72xbf16>, %B: memref<4x72x96xbf16>, %D: memref<70x48xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %ends = memref.get_global @ends : memref<4xi32>
  %T = memref.alloc() : memref<70x96xf32>
  scf.for %e = %c0 to %c4 step %c1 iter_args(%start = %c0) -> (index) {
    %last = memref.load %ends[%e] : memref<4xi32>
    %stop = arith.index_cast %last : i32 to index
    %rows = arith.subi %stop, %start : index
    %a = memref.subview %A[%start, 0] [%rows, 72] [1, 1] : memref<70x72xbf16> to memref<?x72xbf16, strided<[72, 1], offset: ?>>
    %b = memref.subview %B[%e, 0, 0] [1, 72, 96] [1, 1, 1] : memref<4x72x96xbf16> to memref<72x96xbf16, strided<[96, 1], offset: ?>>
    %d = memref.subview %T[%start, 0] [%rows, 96] [1, 1] : memref<70x96xf32> to memref<?x96xf32, strided<[96, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%d : memref<?x96xf32, strided<[96, 1], offset: ?>>)
    linalg.matmul ins(%a, %b : memref<?x72xbf16, strided<[72, 1], offset: ?>>, memref<72x96xbf16, strided<[96, 1], offset: ?>>)
      outs(%d : memref<?x96xf32, strided<[96, 1], offset: ?>>)
    scf.yield %stop : index
  }
  %x = memref.subview %T[0, 0] [70, 48] [1, 1] : memref<70x96xf32> to memref<70x48xf32, strided<[96, 1], offset: 0>>
  %y = memref.subview %T[0, 48] [70, 48] [1, 1] : memref<70x96xf32> to memref<70x48xf32, strided<[96, 1], offset: 48>>
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : memref<70x48xf32, strided<[96, 1], offset: 0>>, memref<70x48xf32, strided<[96, 1], offset: 48>>)
      outs(%D : memref<70x48xbf16>) {
  ^bb0(%gate: f32, %up: f32, %old: bf16):
    %zero_ = arith.constant 0.0 : f32
    %relu = arith.maximumf %gate, %zero_ : f32
    %r = arith.mulf %relu, %up : f32
    %u = arith.truncf %r : f32 to bf16
    linalg.yield %u : bf16
  }
  return
}
