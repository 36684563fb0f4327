// target=sm_100a cta=128,128,64 mma=m128n64k16 ctas=2

func.func @f(%A: memref<200x136xbf16>, %B: memref<136x152xbf16>, %C: memref<200x152xf32>) {
  linalg.matmul ins(%A, %B : memref<200x136xbf16>, memref<136x152xbf16>) outs(%C : memref<200x152xf32>)
  return
}
