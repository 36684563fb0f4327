// target=sm_90a in=a=random:9x100 in=b=random:9x100 in=y=random:9x100 in=z=random:9x100

func.func @f(%a: memref<9x100xf32>, %b: memref<9x100xf32>, %y: memref<9x100xf32>, %z: memref<9x100xf32>) {
  %t = memref.alloc() : memref<9x100xf32>
  linalg.exp ins(%a : memref<9x100xf32>) outs(%t : memref<9x100xf32>)
  linalg.mul ins(%b, %t : memref<9x100xf32>, memref<9x100xf32>) outs(%y : memref<9x100xf32>)
  linalg.add ins(%b, %t : memref<9x100xf32>, memref<9x100xf32>) outs(%z : memref<9x100xf32>)
  return
}
