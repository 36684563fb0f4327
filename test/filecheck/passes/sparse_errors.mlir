// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule" --split-input-file --verify-diagnostics

// expected-error @+2 {{expected warp.metadata to be the number of an argument of the function, a memref, got 4}}
func.func @number(%A: memref<100x96xf16>, %E: memref<7x96xi32>, %B: memref<192x320xf16>, %C: memref<100x320xf32>) {
  linalg.matmul {warp.metadata = 4} ins(%A, %B : memref<100x96xf16>, memref<192x320xf16>) outs(%C : memref<100x320xf32>)
  return
}

// -----

// expected-error @+2 {{expected metadata of 7x96 words for a sparse A of 100x192 f16, got memref<7x64xi32>}}
func.func @size(%A: memref<100x96xf16>, %E: memref<7x64xi32>, %B: memref<192x320xf16>, %C: memref<100x320xf32>) {
  linalg.matmul {warp.metadata = 1} ins(%A, %B : memref<100x96xf16>, memref<192x320xf16>) outs(%C : memref<100x320xf32>)
  return
}

// -----

// expected-error @+2 {{expected the metadata of A as words of i32, got memref<7x96xi16>}}
func.func @words(%A: memref<100x96xf16>, %E: memref<7x96xi16>, %B: memref<192x320xf16>, %C: memref<100x320xf32>) {
  linalg.matmul {warp.metadata = 1} ins(%A, %B : memref<100x96xf16>, memref<192x320xf16>) outs(%C : memref<100x320xf32>)
  return
}

// -----

// expected-error @+2 {{a sparse A is stored row by row, it cannot be transposed}}
func.func @transposed(%A: memref<96x100xf16>, %E: memref<7x96xi32>, %B: memref<192x320xf16>, %C: memref<100x320xf32>) {
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>] {warp.metadata = 1}
    ins(%A, %B : memref<96x100xf16>, memref<192x320xf16>) outs(%C : memref<100x320xf32>)
  return
}

// -----

// expected-error @+2 {{expected A's second dimension and B's first to agree (k), got 192 and 96}}
func.func @dense(%A: memref<100x96xf16>, %E: memref<7x96xi32>, %B: memref<96x320xf16>, %C: memref<100x320xf32>) {
  linalg.matmul {warp.metadata = 1} ins(%A, %B : memref<100x96xf16>, memref<96x320xf16>) outs(%C : memref<100x320xf32>)
  return
}
