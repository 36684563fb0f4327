// target=sm_90a in=o=random:150

func.func @f(%m: memref<300x128xf16>, %b: memref<64x64xf16>, %o: memref<?xf16>) {
  %c0 = arith.constant 0 : index
  %row = memref.dim %o, %c0 : memref<?xf16>
  %x = memref.subview %m[0, 0] [75, 64] [1, 1] : memref<300x128xf16> to memref<75x64xf16, strided<[128, 1]>>
  %y = memref.subview %m[%row, 0] [75, 64] [1, 1] : memref<300x128xf16> to memref<75x64xf16, strided<[128, 1], offset: ?>>
  %z = memref.subview %m[0, 64] [75, 64] [1, 1] : memref<300x128xf16> to memref<75x64xf16, strided<[128, 1], offset: 64>>
  linalg.matmul ins(%x, %b : memref<75x64xf16, strided<[128, 1]>>, memref<64x64xf16>) outs(%y : memref<75x64xf16, strided<[128, 1], offset: ?>>)
  linalg.exp ins(%x : memref<75x64xf16, strided<[128, 1]>>) outs(%z : memref<75x64xf16, strided<[128, 1], offset: 64>>)
  return
}
