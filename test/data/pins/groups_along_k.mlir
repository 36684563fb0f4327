// target=sm_90a

memref.global constant @ends : memref<3xi32> = dense<[65, 65, 97]>

func.func @f(%A: memref<100x72xbf16>, %B: memref<100x136xbf16>, %D: memref<3x72x136xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %ends = memref.get_global @ends : memref<3xi32>
  scf.for %e = %c0 to %c3 step %c1 iter_args(%start = %c0) -> (index) {
    %last = memref.load %ends[%e] : memref<3xi32>
    %stop = arith.index_cast %last : i32 to index
    %rows = arith.subi %stop, %start : index
    %a = memref.subview %A[%start, 0] [%rows, 72] [1, 1] : memref<100x72xbf16> to memref<?x72xbf16, strided<[72, 1], offset: ?>>
    %b = memref.subview %B[%start, 0] [%rows, 136] [1, 1] : memref<100x136xbf16> to memref<?x136xbf16, strided<[136, 1], offset: ?>>
    %d = memref.subview %D[%e, 0, 0] [1, 72, 136] [1, 1, 1] : memref<3x72x136xf32> to memref<72x136xf32, strided<[136, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%d : memref<72x136xf32, strided<[136, 1], offset: ?>>)
    linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : memref<?x72xbf16, strided<[72, 1], offset: ?>>, memref<?x136xbf16, strided<[136, 1], offset: ?>>)
      outs(%d : memref<72x136xf32, strided<[136, 1], offset: ?>>)
    scf.yield %stop : index
  }
  return
}
