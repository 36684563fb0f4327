// target=sm_90a

func.func @f(%A: memref<20x16xf16>, %B: memref<16x24xf16>, %C: memref<20x24xf32>, %D: memref<20x24xf32>) {
  %any = memref.cast %C : memref<20x24xf32> to memref<?x24xf32>
  %back = memref.cast %any : memref<?x24xf32> to memref<20x24xf32>
  memref.copy %back, %D : memref<20x24xf32> to memref<20x24xf32>
  linalg.matmul ins(%A, %B : memref<20x16xf16>, memref<16x24xf16>) outs(%D : memref<20x24xf32>)
  return
}
