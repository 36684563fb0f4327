// target=sm_90a in=x=random:2x16500 in=y=random:2x16500

func.func @f(%x: memref<2x16500xbf16>, %y: memref<2x16500xbf16>) {
  linalg.softmax dimension(1) ins(%x : memref<2x16500xbf16>) outs(%y : memref<2x16500xbf16>)
  return
}
