// target=sm_100a cta=128,128,128 mma=m128n64k32 cluster=2,1

func.func @f(%A: memref<200x72xbf16>, %E: memref<13x96xi32>, %B: memref<144x88xbf16>, %C: memref<200x88xf32>) {
  linalg.matmul {warp.metadata = 1} ins(%A, %B : memref<200x72xbf16>, memref<144x88xbf16>) outs(%C : memref<200x88xf32>)
  return
}
