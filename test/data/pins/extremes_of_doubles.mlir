// target=sm_80

func.func @f(%A: memref<8x64xf64>, %B: memref<8x64xf64>, %C: memref<8x64xf64>) {
      linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
          affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
          ins(%A, %B : memref<8x64xf64>, memref<8x64xf64>) outs(%C : memref<8x64xf64>) {
      ^bb0(%a: f64, %b: f64, %c: f64):
        %0 = arith.maximumf %a, %b : f64
        linalg.yield %0 : f64
      }
      return }
