// target=sm_90a ctas=3

memref.global constant @ends : memref<4xi32> = dense<[17, 17, 90, 97]>

func.func @f(%A: memref<100x72xbf16>, %B: memref<4x72x136xbf16>, %S: memref<4x136xf32>, %D: memref<100x136xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %ends = memref.get_global @ends : memref<4xi32>
  scf.for %e = %c0 to %c4 step %c1 iter_args(%start = %c0) -> (index) {
    %last = memref.load %ends[%e] : memref<4xi32>
    %stop = arith.index_cast %last : i32 to index
    %rows = arith.subi %stop, %start : index
    %a = memref.subview %A[%start, 0] [%rows, 72] [1, 1] : memref<100x72xbf16> to memref<?x72xbf16, strided<[72, 1], offset: ?>>
    %b = memref.subview %B[%e, 0, 0] [1, 72, 136] [1, 1, 1] : memref<4x72x136xbf16> to memref<72x136xbf16, strided<[136, 1], offset: ?>>
    %s = memref.subview %S[%e, 0] [1, 136] [1, 1] : memref<4x136xf32> to memref<136xf32, strided<[1], offset: ?>>
    %d = memref.subview %D[%start, 0] [%rows, 136] [1, 1] : memref<100x136xf32> to memref<?x136xf32, strided<[136, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%d : memref<?x136xf32, strided<[136, 1], offset: ?>>)
    linalg.matmul ins(%a, %b : memref<?x72xbf16, strided<[72, 1], offset: ?>>, memref<72x136xbf16, strided<[136, 1], offset: ?>>)
      outs(%d : memref<?x136xf32, strided<[136, 1], offset: ?>>)
    linalg.generic {indexing_maps = [affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        ins(%s : memref<136xf32, strided<[1], offset: ?>>) outs(%d : memref<?x136xf32, strided<[136, 1], offset: ?>>) {
    ^bb0(%x: f32, %sum: f32):
      %0 = arith.addf %sum, %x : f32
      linalg.yield %0 : f32
    }
    scf.yield %stop : index
  }
  return
}
