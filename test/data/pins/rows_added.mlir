// target=sm_90a

func.func @f(%x: memref<5x40xf32>, %y: memref<5xf32>) {
  %start = arith.constant 0.0 : f32
  // linalg.fill ins(%start : f32) outs(%y : memref<5xf32>)
  linalg.reduce ins(%x : memref<5x40xf32>) outs(%y : memref<5xf32>) dimensions = [1]
    (%a: f32, %b: f32) {
      %r = arith.addf %a, %b : f32
      linalg.yield %r : f32
    }
  return
}
