// target=sm_90a

memref.global constant @ends : memref<3xi32> = dense<[37, 37, 120]>

func.func @varlen(%Q: memref<150x2x64xbf16>, %K: memref<150x2x64xbf16>, %V: memref<150x2x64xbf16>, %O: memref<150x2x64xbf16>, %lse: memref<2x150xf32>) {
  %ends = memref.get_global @ends : memref<3xi32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %cB = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %zh = arith.constant 0.0 : bf16
  %low = arith.constant 0xFF800000 : f32
  %scale = arith.constant 1.250000e-01 : f32
  scf.for %e = %c0 to %cB step %c1 iter_args(%start = %c0) -> (index) {
    %last = memref.load %ends[%e] : memref<3xi32>
    %stop = arith.index_cast %last : i32 to index
    %rows = arith.subi %stop, %start : index
    %q = memref.subview %Q[%start, 0, 0] [%rows, 2, 64] [1, 1, 1] : memref<150x2x64xbf16> to memref<?x2x64xbf16, strided<[128, 64, 1], offset: ?>>
    %k = memref.subview %K[%start, 0, 0] [%rows, 2, 64] [1, 1, 1] : memref<150x2x64xbf16> to memref<?x2x64xbf16, strided<[128, 64, 1], offset: ?>>
    %v = memref.subview %V[%start, 0, 0] [%rows, 2, 64] [1, 1, 1] : memref<150x2x64xbf16> to memref<?x2x64xbf16, strided<[128, 64, 1], offset: ?>>
    %o = memref.subview %O[%start, 0, 0] [%rows, 2, 64] [1, 1, 1] : memref<150x2x64xbf16> to memref<?x2x64xbf16, strided<[128, 64, 1], offset: ?>>
    %S = memref.alloc(%rows, %rows) : memref<2x?x?xf32>
    linalg.fill ins(%zero : f32) outs(%S : memref<2x?x?xf32>)
    linalg.generic {indexing_maps = [affine_map<(h, m, n, d) -> (m, h, d)>, affine_map<(h, m, n, d) -> (n, h, d)>, affine_map<(h, m, n, d) -> (h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : memref<?x2x64xbf16, strided<[128, 64, 1], offset: ?>>, memref<?x2x64xbf16, strided<[128, 64, 1], offset: ?>>) outs(%S : memref<2x?x?xf32>) {
    ^bb0(%a: bf16, %b: bf16, %t: f32):
      %x = arith.extf %a : bf16 to f32
      %y = arith.extf %b : bf16 to f32
      %p = arith.mulf %x, %y : f32
      %u = arith.addf %t, %p : f32
      linalg.yield %u : f32
    }
    %X = memref.alloc(%rows, %rows) : memref<2x?x?xf32>
    linalg.generic {indexing_maps = [affine_map<(h, m, n) -> (h, m, n)>, affine_map<(h, m, n) -> (h, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%S : memref<2x?x?xf32>) outs(%X : memref<2x?x?xf32>) {
    ^bb0(%a: f32, %t: f32):
      %y = arith.mulf %a, %scale : f32
      %i = linalg.index 1 : index
        %j = linalg.index 2 : index
        %c = arith.cmpi sgt, %j, %i : index
        %z = arith.select %c, %low, %y : f32
      linalg.yield %z : f32
    }
    %M = memref.alloc(%rows) : memref<2x?xf32>
    linalg.fill ins(%low : f32) outs(%M : memref<2x?xf32>)
    linalg.generic {indexing_maps = [affine_map<(h, m, n) -> (h, m, n)>, affine_map<(h, m, n) -> (h, m)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%X : memref<2x?x?xf32>) outs(%M : memref<2x?xf32>) {
    ^bb0(%a: f32, %t: f32):
      %y = arith.maximumf %t, %a : f32
      linalg.yield %y : f32
    }
    %E = memref.alloc(%rows, %rows) : memref<2x?x?xf32>
    linalg.generic {indexing_maps = [affine_map<(h, m, n) -> (h, m, n)>, affine_map<(h, m, n) -> (h, m)>, affine_map<(h, m, n) -> (h, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%X, %M : memref<2x?x?xf32>, memref<2x?xf32>) outs(%E : memref<2x?x?xf32>) {
    ^bb0(%a: f32, %b: f32, %t: f32):
      %y = arith.subf %a, %b : f32
      %z = math.exp %y : f32
      linalg.yield %z : f32
    }
    %L = memref.alloc(%rows) : memref<2x?xf32>
    linalg.fill ins(%zero : f32) outs(%L : memref<2x?xf32>)
    linalg.generic {indexing_maps = [affine_map<(h, m, n) -> (h, m, n)>, affine_map<(h, m, n) -> (h, m)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%E : memref<2x?x?xf32>) outs(%L : memref<2x?xf32>) {
    ^bb0(%a: f32, %t: f32):
      %y = arith.addf %t, %a : f32
      linalg.yield %y : f32
    }
    %P16 = memref.alloc(%rows, %rows) : memref<2x?x?xbf16>
    linalg.generic {indexing_maps = [affine_map<(h, m, n) -> (h, m, n)>, affine_map<(h, m, n) -> (h, m)>, affine_map<(h, m, n) -> (h, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%E, %L : memref<2x?x?xf32>, memref<2x?xf32>) outs(%P16 : memref<2x?x?xbf16>) {
    ^bb0(%a: f32, %b: f32, %t: bf16):
      %y = arith.divf %a, %b : f32
      %z = arith.truncf %y : f32 to bf16
      linalg.yield %z : bf16
    }
    %l = memref.subview %lse[0, %start] [2, %rows] [1, 1] : memref<2x150xf32> to memref<2x?xf32, strided<[150, 1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(h, m) -> (h, m)>, affine_map<(h, m) -> (h, m)>, affine_map<(h, m) -> (h, m)>], iterator_types = ["parallel", "parallel"]} ins(%M, %L : memref<2x?xf32>, memref<2x?xf32>) outs(%l : memref<2x?xf32, strided<[150, 1], offset: ?>>) {
    ^bb0(%a: f32, %b: f32, %t: f32):
      %y = math.log %b : f32
      %z = arith.addf %a, %y : f32
      linalg.yield %z : f32
    }
    linalg.fill ins(%zh : bf16) outs(%o : memref<?x2x64xbf16, strided<[128, 64, 1], offset: ?>>)
    linalg.generic {indexing_maps = [affine_map<(h, m, d, n) -> (h, m, n)>, affine_map<(h, m, d, n) -> (n, h, d)>, affine_map<(h, m, d, n) -> (m, h, d)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%P16, %v : memref<2x?x?xbf16>, memref<?x2x64xbf16, strided<[128, 64, 1], offset: ?>>) outs(%o : memref<?x2x64xbf16, strided<[128, 64, 1], offset: ?>>) {
    ^bb0(%a: bf16, %b: bf16, %t: bf16):
      %p = arith.mulf %a, %b : bf16
      %u = arith.addf %t, %p : bf16
      linalg.yield %u : bf16
    }
    scf.yield %stop : index
  }
  return
}
